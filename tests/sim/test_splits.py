"""Splits: their pairs of tools and objects, and the scenes drawn from them."""

from itertools import product

import gymnasium
import pytest

import fleet_tools  # noqa: F401
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.catalog import model_names
from fleet_tools.sim.scene import sample_scene
from fleet_tools.sim.splits import SPLITS, model_pairs

TASKS = [load_task(name) for name in task_names()]
by_name = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


@by_name
def test_no_pair_is_in_two_splits(task):
    pairs = [pair for split in SPLITS[:-1] for pair in model_pairs(task, split)]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) <= set(model_pairs(task, "all"))


@by_name
def test_the_splits_hold_out_tools_objects_and_pairs(task):
    train = model_pairs(task, "train")
    tools, objects = ({pair[side] for pair in train} for side in (0, 1))
    assert all(t in tools and o in objects for t, o in model_pairs(task, "unseen_pairs"))
    assert all(t not in tools and o in objects for t, o in model_pairs(task, "unseen_tools"))
    assert all(t in tools and o not in objects for t, o in model_pairs(task, "unseen_objects"))


@by_name
def test_there_are_enough_models_to_train_and_to_test(task):
    tools = model_names("tool", task.tool_family)
    objects = model_names("object", task.object_family)
    assert len(tools) >= 8 and len(objects) >= 6
    assert (tools, objects) == (sorted(tools), sorted(objects))
    assert model_pairs(task, "all") == sorted(product(tools, objects))
    assert len(model_pairs(task, "train")) >= 16


@by_name
@pytest.mark.parametrize("split", SPLITS)
def test_scenes_are_drawn_from_their_split_and_from_all_of_it(task, split):
    missing = pairs = set(model_pairs(task, split))
    for seed in range(40 * len(pairs)):
        scene = sample_scene(task, seed, split=split, randomization="off")
        assert (scene.tool, scene.object) in pairs
        missing = missing - {(scene.tool, scene.object)}
        if not missing and seed >= 50:
            return
    raise AssertionError(missing)


def test_an_unknown_split_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'unseen_tools'"):
        gymnasium.make("FleetTools/Hammer-v0", split="unseen_tool")


def test_holding_out_an_unknown_tool_is_refused():
    held_out = TASKS[0].held_out.model_copy(update={"tools": ("clow",)})
    with pytest.raises(UnknownNameError, match="held-out tool: 'clow'"):
        model_pairs(TASKS[0].model_copy(update={"held_out": held_out}), "train")
