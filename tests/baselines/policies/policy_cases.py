"""Small policies of every kind, and observations for them."""

from functools import cache

import numpy as np
import torch

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import (
    MLP,
    PointNet,
    PolicyConfig,
    Recurrent,
    ResNet18,
    Transformer,
)
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.scaling import Scaling
from fleet_tools.dataset.header import Array

torch.set_num_threads(1)  # tiny tensors: threads only wait for one another

ACTION = Array(shape=(6,), dtype="float32", unit="m, rad", frame="end effector", scale=(0.05,) * 6)

STATE = {
    "joint_position": Array(shape=(7,), dtype="float32", unit="rad", frame=None),
    "object_keypoints": Array(
        shape=(2, 3), dtype="float32", unit="m", frame="end effector", entries=("head", "base")
    ),
}
CLOUD = {"point_cloud": Array(shape=(20, 4), dtype="float32", unit="m, mask", frame="end effector")}
PICTURES = {
    f"{name}_rgb": Array(shape=(40, 33, 3), dtype="uint8", unit="1/255", frame=f"camera {name}")
    for name in ("wrist", "table")
}

BODIES = {
    "mlp": MLP(layers=2, width=24),
    **{cell: Recurrent(type=cell, layers=2, width=16) for cell in ("elman", "lstm", "gru")},
    "transformer": Transformer(layers=2, width=16, heads=2, feedforward=20, context=3),
}

_CLOUDS, _PICTURES = PointNet(widths=(12, 16)), ResNet18(width=4)
_READS = {
    "state": (STATE, {}),
    "clouds": (CLOUD | STATE, {"clouds": _CLOUDS}),
    "pictures": (PICTURES, {"pictures": _PICTURES}),
}

BLUEPRINTS = {
    f"{body} on {what}": Blueprint.of(PolicyConfig(body=BODIES[body], **encoders), read, ACTION)
    for body in BODIES
    for what, (read, encoders) in _READS.items()
}
BLUEPRINTS["gru on all"] = Blueprint.of(
    PolicyConfig(body=BODIES["gru"], clouds=_CLOUDS, pictures=_PICTURES),
    STATE | CLOUD | PICTURES,
    ACTION,
    Scaling(
        mean={"joint_position": (0.3,) * 7, "object_keypoints": (0.2,) * 6},
        std={"joint_position": (1.7,) * 7, "object_keypoints": (0.6,) * 6},
    ),
)
BLUEPRINTS["mlp on frozen pictures"] = Blueprint.of(
    PolicyConfig(body=BODIES["mlp"], pictures=ResNet18(width=4, frozen=True)), PICTURES, ACTION
)


@cache
def made(name: str, seed: int = 0) -> PolicyNetwork:
    """A network to look at, not to change."""
    return BLUEPRINTS[name].create(seed).eval()


def observations(blueprint: Blueprint, batch: int, steps: int, seed: int = 0) -> dict:
    """Trajectories of numbers, (B, T, *shape), with a third of a cloud's points absent."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for name, array in blueprint.observation.items():
        shape = (batch, steps, *array.shape)
        if array.dtype == "uint8":
            arrays[name] = torch.tensor(generator.integers(0, 256, shape), dtype=torch.uint8)
            continue
        numbers = generator.normal(size=shape).astype(np.float32)
        if name in CLOUD:
            numbers[..., :3] *= 0.1
            numbers[..., 3] = generator.integers(-1, 2, shape[:-1])
            numbers *= np.abs(numbers[..., 3:])
        arrays[name] = torch.tensor(numbers)
    return arrays


def step(trajectories: dict, batch: int, at: int) -> dict[str, np.ndarray]:
    """One step's observation, as an environment gives it."""
    return {name: rows[batch, at].numpy() for name, rows in trajectories.items()}
