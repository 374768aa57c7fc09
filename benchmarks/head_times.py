"""Times of an experiment's policy by head: `python benchmarks/head_times.py EXPERIMENT.yaml`."""

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from scaffold import cpu_seconds, main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.baselines.experiments.form import load_experiment, planned_runs
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.part_configs import LinearHeadConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.config.values import Count
from fleet_tools.dataset.samples import Samples
from fleet_tools.utils import cli

_COLUMNS = ("head", "parameters", "training, us a step", "over linear", "action, ms")
_ACTIONS = 24


class HeadTimesOptions(cli.Options):
    """Measures processor times of an experiment's policy, beside one with a linear head.

    The policy is the one of the first arm. Both have random weights, and take turns on one thread.
    Times are medians over turns: of training for each demonstrated step, and of an action. The
    network runs for each action, also for those of an earlier chunk.
    """

    experiment: Annotated[Path, Positional, arg(metavar="YAML")]
    """Experiment with fleets whose policies have another head; its data are in this folder."""
    episodes: Count = 40
    """Number of episodes to train on."""
    turns: Count = 7
    """Number of turns."""


@dataclass(frozen=True)
class _Measured:
    """A policy, and how to train it for an epoch."""

    policy: NetworkPolicy
    parameters: int
    epoch: partial[TrainingState]
    steps: int
    observation: dict[str, np.ndarray]

    def turn(self) -> tuple[float, float]:
        """Returns the seconds of training for a step, and of an action."""
        self.policy.reset()
        actions = cpu_seconds(lambda: [self.policy.act(self.observation) for _ in range(_ACTIONS)])
        return cpu_seconds(self.epoch) / self.steps, actions / _ACTIONS


def _rows(options: HeadTimesOptions) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    config = planned_runs(load_experiment(options.experiment))[0].parsed(FleetConfig)
    samples = Samples(config.data, observations=config.policy.reads or None)
    chosen = np.random.default_rng(0).permutation(len(samples.episodes))[: options.episodes]
    samples = samples.subset(sorted(chosen.tolist()))
    observation = {name: row[0] for name, row in samples.read(np.array([0]))["observation"].items()}
    measured = {}
    for head in (LinearHeadConfig(), config.policy.head):
        blueprint = blueprint_of(config.policy.model_copy(update={"head": head}), samples)
        weights = blueprint.create().state_dict()
        data, state = Trajectories(samples, blueprint), TrainingState.initial(weights)
        measured[head.type] = _Measured(
            policy=NetworkPolicy(Checkpoint(blueprint, weights)),
            parameters=sum(each.numel() for each in weights.values()),
            epoch=partial(train, blueprint, data, config.training, state, epochs=1),
            steps=data.steps,
            observation=observation,
        )
    turns = [{name: each.turn() for name, each in measured.items()} for _ in range(options.turns)]
    for name, each in measured.items():
        training_s, action_s = np.median([turn[name] for turn in turns], axis=0)
        ratio = statistics.median(turn[name][0] / turn["linear"][0] for turn in turns)
        yield {
            "head": name,
            "parameters": each.parameters,
            "training_us": 1e6 * training_s,
            "ratio": ratio,
            "action_ms": 1e3 * action_s,
        }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["head"],
        f"{row['parameters']:,}",
        f"{row['training_us']:.0f}",
        f"{row['ratio']:.2f}",
        f"{row['action_ms']:.2f}",
    ]


def _measure(options: HeadTimesOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options), _cells)
    return cli.OK


main = main_of(__file__, HeadTimesOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
