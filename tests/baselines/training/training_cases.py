"""Small data sets and policies to train, and where they are trained."""

from pathlib import Path

import torch
from small_data_sets import Drawn, a_header, write

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import MLP, PolicyConfig, Recurrent, Transformer
from fleet_tools.baselines.training.experiment import blueprint_of
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.dataset.samples import Samples

torch.set_num_threads(1)  # tiny tensors: threads only wait for one another

LAYOUT = {"joint_position": ((7,), "float32"), "object_keypoints": ((2, 3), "float32")}
STEPS = [5, 1, 7, 0, 4, 9, 3]

BODIES = {
    "mlp": MLP(layers=2, width=24),
    **{cell: Recurrent(type=cell, layers=2, width=16) for cell in ("elman", "lstm", "gru")},
    "transformer": Transformer(layers=2, width=16, heads=2, feedforward=20, context=3),
}


def small_data(folder: Path, steps: list[int] = STEPS, seed: int = 0) -> Samples:
    """Episodes of random numbers, so many steps long."""
    write(folder, Drawn(steps, [True] * len(steps), seed), a_header(LAYOUT))
    return Samples(folder)


def cloned(samples: Samples, body: str = "elman") -> tuple[Blueprint, Trajectories, TrainingState]:
    """What it takes to train a policy."""
    blueprint = blueprint_of(PolicyConfig(body=BODIES[body]), samples)
    weights = blueprint.create(seed=3).state_dict()
    weights["head.weight"] *= 0.3  # its actions stay within bounds, where nothing is clipped
    state = TrainingState.initial(weights)
    return blueprint, Trajectories(samples, blueprint), state


def same(one: dict, other: dict) -> bool:
    """Whether tensors by name are the same bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
