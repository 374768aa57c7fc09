"""Which tool meets which object: for training, and to test generalization.

train            tools and objects that are not held out, but for the held-out pairs
unseen_pairs     the held-out pairs: tool and object are each seen, never together
unseen_tools     held-out tools on objects that are seen
unseen_objects   tools that are seen on held-out objects
all              every tool on every object
"""

from itertools import product

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.catalog import model_names

SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects", "all")


def model_pairs(task: TaskConfig, split: str) -> list[tuple[str, str]]:
    """Returns the pairs (tool, object) of a split, sorted.

    Raises:
        UnknownNameError: There is no such split, it is empty, or the task holds out what does not
            exist.
    """
    tools = model_names("tool", task.tool_family, task.assets)
    objects = model_names("object", task.object_family, task.assets)
    held_out = task.held_out
    for kind, known, names in (
        ("tool", tools, [*held_out.tools, *(tool for tool, _ in held_out.pairs)]),
        ("object", objects, [*held_out.objects, *(object for _, object in held_out.pairs)]),
    ):
        for name in names:
            if name not in known:
                raise UnknownNameError(f"held-out {kind}", name, known)
    seen_tools = [tool for tool in tools if tool not in held_out.tools]
    seen_objects = [object for object in objects if object not in held_out.objects]
    seen = set(product(seen_tools, seen_objects))
    pairs = {
        "train": seen - set(held_out.pairs),
        "unseen_pairs": seen & set(held_out.pairs),
        "unseen_tools": set(product(held_out.tools, seen_objects)),
        "unseen_objects": set(product(seen_tools, held_out.objects)),
        "all": set(product(tools, objects)),
    }
    if not pairs.get(split):
        some = [name for name, content in pairs.items() if content]
        raise UnknownNameError(f"split of the task {task.name!r} with models in it", split, some)
    return sorted(pairs[split])
