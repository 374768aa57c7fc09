"""Where robots are served: places of machines, and messages that no host has begun."""

from collections import Counter, deque
from collections.abc import Hashable, Sequence

from fleet_tools.errors import require_name

Place = str | None
"""A resource of Ray that machines have; None where any machine will do."""


class Outbox:
    """Robots whose messages wait, by their place, and by the host that has them open.

    A free host takes first a robot that it has open itself, then one that no host has, and one of
    another host only if it is told to: opening a robot's data again takes longer than a short wait.
    """

    def __init__(self) -> None:
        # Of each place, robots by their host; None for those that no host has.
        self._queues: dict[Place, dict[Hashable | None, deque[int]]] = {}

    def put(self, robot: int, place: Place, host: Hashable | None = None) -> None:
        """Adds a robot behind the others of its host."""
        self._queues.setdefault(place, {}).setdefault(host, deque()).append(robot)

    def take(self, place: Place, host: Hashable, *, of_others: bool) -> int | None:
        """Removes the robot that is next for a free host, and returns it.

        Args:
            place: Place of the host.
            host: The host.
            of_others: Whether it may take a robot that another host has open.

        Returns:
            The robot; None if there is none for it.
        """
        queues = self._queues.get(place, {})
        longest = max(queues, key=lambda each: len(queues[each]), default=None)
        for each in (host, None, *([longest] if of_others else [])):
            if queues.get(each):
                return queues[each].popleft()
        return None

    def release(self, place: Place, host: Hashable) -> None:
        """Lets any host take the robots of one that is gone."""
        queues = self._queues.get(place, {})
        if host in queues:
            queues.setdefault(None, deque()).extend(queues.pop(host))

    def drop(self, place: Place) -> list[int]:
        """Removes the robots of a place, and returns them."""
        return [robot for queue in self._queues.pop(place, {}).values() for robot in queue]

    def places(self) -> list[Place]:
        """Returns the places where robots wait."""
        return [place for place in self._queues if self.count(place)]

    def count(self, place: Place) -> int:
        """Returns the number of robots that wait at a place."""
        return sum(map(len, self._queues.get(place, {}).values()))


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
