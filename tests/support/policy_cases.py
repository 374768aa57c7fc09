"""Small policies of every kind, and observations for them."""

from functools import cache

import numpy as np
import torch

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import Scaling
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.part_configs import (
    BodyConfig,
    DiffusionHeadConfig,
    FlowHeadConfig,
    HeadConfig,
    MLPConfig,
    PointNetConfig,
    RecurrentConfig,
    ResNet18Config,
    TransformerConfig,
)
from fleet_tools.dataset.header import ArraySpec

torch.set_num_threads(1)  # tiny tensors: threads only wait for one another

ACTION = ArraySpec(
    kind="action",
    shape=(6,),
    dtype="float32",
    unit="m, rad",
    frame="end effector",
    scale=(0.05,) * 6,
    rate_hz=6.0,
)

STATE = {
    "joint_position": ArraySpec(kind="state", shape=(7,), dtype="float32", unit="rad", frame=None),
    "object_keypoints": ArraySpec(
        kind="keypoints",
        shape=(2, 3),
        dtype="float32",
        unit="m",
        frame="end effector",
        entries=("head", "base"),
    ),
}
CLOUD = {
    "point_cloud": ArraySpec(
        kind="points", shape=(20, 4), dtype="float32", unit="m, mask", frame="end effector"
    )
}
PADDED = {
    name: ArraySpec(
        kind="masked_keypoints", shape=(3, 4), dtype="float32", unit="m, mask", frame="end effector"
    )
    for name in ("tool_keypoints", "object_keypoints")
} | {"joint_position": STATE["joint_position"]}
IMAGES = {
    f"{name}_rgb": ArraySpec(
        kind="rgb", shape=(40, 33, 3), dtype="uint8", unit="1/255", frame=f"camera {name}"
    )
    for name in ("wrist", "table")
}

BODIES: dict[str, BodyConfig] = {
    "mlp": MLPConfig(layers=2, width=24),
    "linear": MLPConfig(layers=0),
    "elman": RecurrentConfig(type="elman", layers=2, width=16),
    "lstm": RecurrentConfig(type="lstm", layers=2, width=16),
    "gru": RecurrentConfig(type="gru", layers=2, width=16),
    "transformer": TransformerConfig(layers=2, width=16, heads=2, feedforward=20, context=3),
}

DENOISING: dict[str, HeadConfig] = {
    "flow": FlowHeadConfig(layers=2, width=20, steps=4),
    "diffusion": DiffusionHeadConfig(layers=2, width=20, levels=20, steps=4),
}
"""Small heads that begin with noise."""

CONDITIONED: dict[str, BodyConfig] = {
    "film": MLPConfig(layers=2, width=24, task_conditioning="film"),
    "token": TransformerConfig(
        layers=2, width=16, heads=2, feedforward=20, context=3, task_conditioning="token"
    ),
}
"""Small bodies that are told the task."""

_CLOUDS, _IMAGES = PointNetConfig(widths=(12, 16)), ResNet18Config(width=4)
_POSITIONS = ResNet18Config(width=4, stages=3, pooling="position")

BLUEPRINTS = {
    **{
        f"{name} on {what}": blueprint
        for name, body in BODIES.items()
        for what, blueprint in {
            "state": Blueprint.of(PolicyConfig(body=body), STATE, ACTION),
            "clouds": Blueprint.of(PolicyConfig(body=body, clouds=_CLOUDS), CLOUD | STATE, ACTION),
            "images": Blueprint.of(PolicyConfig(body=body, images=_IMAGES), IMAGES, ACTION),
        }.items()
    },
    "mlp on positions in images": Blueprint.of(
        PolicyConfig(body=BODIES["mlp"], images=_POSITIONS), IMAGES | STATE, ACTION
    ),
    "gru on all": Blueprint.of(
        PolicyConfig(body=BODIES["gru"], clouds=_CLOUDS, images=_IMAGES),
        STATE | CLOUD | IMAGES,
        ACTION,
        Scaling(
            mean={"joint_position": (0.3,) * 7, "object_keypoints": (0.2,) * 6},
            std={"joint_position": (1.7,) * 7, "object_keypoints": (0.6,) * 6},
        ),
    ),
    **{
        f"{body} with {name}": Blueprint.of(
            PolicyConfig(body=BODIES[body], head=head, chunk=2), STATE, ACTION
        )
        for body, (name, head) in zip(("mlp", "gru"), DENOISING.items(), strict=True)
    },
    **{
        f"{name} of the task": Blueprint.of(PolicyConfig(body=body), PADDED, ACTION)
        for name, body in CONDITIONED.items()
    },
    "elman with chunks": Blueprint.of(PolicyConfig(body=BODIES["elman"], chunk=3), STATE, ACTION),
    "mlp on frozen images": Blueprint.of(
        PolicyConfig(body=BODIES["mlp"], images=ResNet18Config(width=4, frozen=True)),
        IMAGES,
        ACTION,
    ),
}


@cache
def made(name: str, seed: int = 0) -> PolicyNetwork:
    """Returns a network that all tests share, and none changes."""
    return single_network(BLUEPRINTS[name], seed).eval()


def single_network(blueprint: Blueprint, seed: int = 0) -> PolicyNetwork:
    """Returns the new network of a blueprint without a gate."""
    network = blueprint.create(seed)
    assert isinstance(network, PolicyNetwork)
    return network


def observations(
    blueprint: Blueprint, batch: int, steps: int, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Returns trajectories of random numbers, (B, T, *shape) by name.

    A third of a cloud's points are absent.
    """
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


def step(trajectories: dict[str, torch.Tensor], batch: int, index: int) -> dict[str, np.ndarray]:
    """Returns the observation of one step, as an environment does."""
    return {name: rows[batch, index].numpy() for name, rows in trajectories.items()}
