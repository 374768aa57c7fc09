"""Splits: pairs of tools and objects for training, and for tests of generalization.

train            tools and objects that are not held out, except for the held-out pairs
unseen_pairs     held-out pairs: tool and object each occur in `train`, but never together
unseen_tools     held-out tools with objects of `train`
unseen_objects   tools of `train` with held-out objects
all              every tool with every object

Scene seeds have disjoint ranges, so that no policy is evaluated on scenes it was trained on. Those
that are stored lie below 2^53, so that every JSON reader keeps them.
"""

from itertools import product

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import UnknownNameError, require_name
from fleet_tools.sim.catalog import model_names

TRAINING = range(2**52)
"""Seeds of datasets and of `env.reset()`."""
EVALUATION = range(2**52, 2**53)
"""Seeds of evaluation protocols."""
VALIDATION = range(2**53, 2**54)
"""Seeds of rollouts during training."""

SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects", "all")


def model_pairs(task: TaskConfig, split: str) -> list[tuple[str, str]]:
    """Returns the (tool, object) pairs of a split, sorted.

    Raises:
        UnknownNameError: There is no such split, it is empty, or the task holds out a model that
            does not exist.
    """
    pairs = split_pairs(task)
    remedy = "Splits without any models are left out."
    require_name(f"split of the task {task.name!r}", split, pairs, remedy)
    return pairs[split]


def split_pairs(task: TaskConfig) -> dict[str, list[tuple[str, str]]]:
    """Returns the (tool, object) pairs of each split that is not empty, sorted.

    Raises:
        UnknownNameError: The task holds out a model that does not exist.
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
    return {name: sorted(content) for name, content in pairs.items() if content}
