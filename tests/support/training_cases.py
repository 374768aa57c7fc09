"""Small datasets and policies to train."""

from collections.abc import Sequence
from pathlib import Path

import torch
from support.policy_cases import BODIES
from support.small_datasets import Drawn, a_header, write

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.state import Tensors, TrainingProgress, TrainingState
from fleet_tools.dataset.samples import Samples

torch.set_num_threads(1)  # tiny tensors: threads only wait for one another

LAYOUT = {"joint_position": ((7,), "float32"), "object_keypoints": ((2, 3), "float32")}
STEPS = (5, 1, 7, 0, 4, 9, 3)

_POLICY = [
    "--architecture", "gru", "--set", "body.layers=1", "--set", "body.width=8", "--threads", "1",
    "--batch-size", "8",
]  # fmt: skip


def small_data(folder: Path, steps: Sequence[int] = STEPS, seed: int = 0) -> Samples:
    """Writes a dataset of random numbers, and returns its samples."""
    write(folder, Drawn(list(steps), [True] * len(steps), seed), a_header(LAYOUT))
    return Samples(folder)


def cloned(samples: Samples, body: str = "elman") -> tuple[Blueprint, Trajectories, TrainingState]:
    """Returns a policy that learns from samples: its blueprint, its data and its first state."""
    blueprint = blueprint_of(PolicyConfig(body=BODIES[body]), samples)
    weights = blueprint.create(seed=3).state_dict()
    weights["head.weight"] *= 0.3  # its actions stay within bounds, where nothing is clipped
    state = TrainingState.initial(weights)
    return blueprint, Trajectories(samples, blueprint), state


def same(one: Tensors, other: Tensors) -> bool:
    """Whether tensors by name are the same bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def equal(one: TrainingProgress, other: TrainingProgress) -> bool:
    """Whether two runs go on to the same bits."""
    numbers = [
        (each.state.epoch, each.state.batch, each.state.squares, each.state.steps, each.metrics)
        for each in (one, other)
    ]
    return (
        numbers[0] == numbers[1]
        and same(one.state.weights, other.state.weights)
        and same(one.state.moments, other.state.moments)
        and same(one.best, other.best)
    )


def train_options(data: Path, output: Path, *more: str) -> list[str]:
    """Returns options of the training program for a small policy."""
    return [*_POLICY, "--dataset", str(data), "--output", str(output), *more]
