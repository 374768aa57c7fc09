"""Places: Ray resources that say on which machines of a cluster a robot lives."""

from collections import Counter
from collections.abc import Sequence

from fleet_tools.errors import require_name

_OF_RAY = ("CPU", "GPU", "TPU", "memory", "object_store_memory", "node:__internal_head__")
"""Resources of Ray itself, which say nothing of where a machine is; `node:ADDRESS` does."""


def place_cores() -> dict[str, int]:
    """Returns the number of cores of the machines at each place, at least one.

    Machines that Ray has lost do not count.
    """
    import ray

    cores: Counter[str] = Counter()
    for node in ray.nodes():
        if node["Alive"]:
            for name in node["Resources"]:
                if name not in _OF_RAY:
                    cores[name] += int(node["Resources"].get("CPU", 0))
    return {place: max(1, count) for place, count in cores.items()}


def require_places(places: Sequence[str]) -> None:
    """Checks that machines of the cluster have the resources of places.

    Raises:
        UnknownNameError: None has one of them.
    """
    known = place_cores() if places else {}
    for place in places:
        remedy = f"`ray start --resources '{{\"{place}\": 1}}'` gives it to a machine."
        require_name("place", place, known, remedy)
