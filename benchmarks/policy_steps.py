"""Time of a step of policies with chunks, by head: `python benchmarks/policy_steps.py DATASET`."""

import statistics
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from scaffold import cpu_seconds, main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import (
    DiffusionHeadConfig,
    FlowHeadConfig,
    HeadConfig,
    HorizonConfig,
    LinearHeadConfig,
    PointNetConfig,
    RecurrentConfig,
)
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.config.values import Count
from fleet_tools.dataset import Dataset
from fleet_tools.utils import cli

HEADS: dict[str, HeadConfig] = {
    "linear": LinearHeadConfig(),
    "flow, 4 steps": FlowHeadConfig(width=128, steps=4),
    "flow, 10 steps": FlowHeadConfig(steps=10),
    "diffusion, 10 steps": DiffusionHeadConfig(steps=10),
}
_STEPS = 30


class PolicyStepsOptions(cli.Options):
    """Measures the time of a policy's step, beside one with a linear head.

    Policies have random weights, an Elman network of 2 x 128 units, and a PointNet if there are
    clouds. Of chunks of 8 actions, 4 are executed. They take turns on one thread. Times are the
    medians of
    processor times.
    """

    dataset: Annotated[Path, Positional, arg(metavar="DATASET")]
    """Dataset with the observations."""
    turns: Count = 9
    """Number of turns."""


def _measure(options: PolicyStepsOptions) -> int:
    torch.set_num_threads(1)
    header = Dataset(options.dataset).header
    kinds = {array.kind for array in header.observation.values()}
    clouds = PointNetConfig(widths=(64, 128, 256)) if "points" in kinds else None
    policies, sizes = {}, {}
    for name, head in HEADS.items():
        config = PolicyConfig(
            body=RecurrentConfig(type="elman", layers=2, width=128),
            clouds=clouds,
            head=head,
            chunk=8,
            execution=HorizonConfig(steps=4),
        )
        blueprint = Blueprint.of(config, header.observation, header.action)
        weights = blueprint.create().state_dict()
        policies[name] = NetworkPolicy(Checkpoint(blueprint, weights))
        sizes[name] = sum(each.numel() for each in weights.values())
    generator = np.random.default_rng(0)
    observation = {
        name: generator.normal(size=array.shape).astype(array.dtype)
        for name, array in header.observation.items()
    }

    def seconds(policy: NetworkPolicy) -> float:
        policy.reset()
        return cpu_seconds(lambda: [policy.act(observation) for _ in range(_STEPS)]) / _STEPS

    turns = [
        {name: seconds(policy) for name, policy in policies.items()} for _ in range(options.turns)
    ]
    rows = [
        {
            "head": name,
            "parameters": sizes[name],
            "ms": 1e3 * statistics.median(turn[name] for turn in turns),
            "ratio": statistics.median(turn[name] / turn["linear"] for turn in turns),
        }
        for name in policies
    ]

    def cells(row: dict[str, Any]) -> list[str]:
        return [row["head"], f"{row['parameters']:,}", f"{row['ms']:.2f}", f"{row['ratio']:.1f}"]

    report_rows(options, ["head", "parameters", "ms a step", "over linear"], rows, cells)
    return cli.OK


main = main_of(__file__, PolicyStepsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
