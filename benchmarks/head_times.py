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

from fleet_tools.baselines.experiments.form import load_experiment
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import LinearHeadConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.config.values import Count, parse
from fleet_tools.dataset.samples import Samples
from fleet_tools.utils import cli

_COLUMNS = ("head", "parameters", "training, us a step", "over linear", "action, ms", "largest, ms")
_ACTIONS = 24


class HeadTimesOptions(cli.Options):
    """Measures processor times of an experiment's policy, beside one with a linear head.

    Both have random weights, and take turns on one thread. Times are medians over turns: of
    training for each demonstrated step, of an action on average, and of an action for which the
    network runs.
    """

    experiment: Annotated[Path, Positional, arg(metavar="YAML")]
    """Experiment whose policies have another head; its data are in the present folder."""
    episodes: Count = 40
    """Number of episodes to train on."""
    turns: Count = 7
    """Number of turns."""


@dataclass(frozen=True)
class _Measured:
    """A policy, and how to train it for an epoch."""

    policy: NetworkPolicy
    epoch: partial[TrainingState]
    steps: int
    observation: dict[str, np.ndarray]

    def turn(self) -> tuple[float, float, float]:
        """Returns the seconds of training for a step, of an action, and of the longest action."""
        training = cpu_seconds(self.epoch) / self.steps
        self.policy.reset()
        acting = partial(self.policy.act, self.observation)
        actions = [cpu_seconds(acting) for _ in range(_ACTIONS)]
        runs = sorted(actions)[-_ACTIONS // 8 :]  # the network runs for a quarter of the actions
        return training, statistics.mean(actions), statistics.median(runs)


def _rows(options: HeadTimesOptions) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    experiment, source = load_experiment(options.experiment), str(options.experiment)
    config = parse(PolicyConfig, experiment.base["policy"], source)
    training = parse(TrainingConfig, experiment.base["training"], source)
    samples = Samples(experiment.data, observations=config.reads or None)
    chosen = np.random.default_rng(0).permutation(len(samples.episodes))[: options.episodes]
    samples = samples.subset(sorted(chosen.tolist()))
    observation = {name: row[0] for name, row in samples.read(np.array([0]))["observation"].items()}
    measured, sizes = {}, {}
    for head in (LinearHeadConfig(), config.head):
        blueprint = blueprint_of(config.model_copy(update={"head": head}), samples)
        weights = blueprint.create().state_dict()
        data, state = Trajectories(samples, blueprint), TrainingState.initial(weights)
        measured[head.type] = _Measured(
            policy=NetworkPolicy(Checkpoint(blueprint, weights)),
            epoch=partial(train, blueprint, data, training, state, epochs=1),
            steps=data.steps,
            observation=observation,
        )
        sizes[head.type] = sum(each.numel() for each in weights.values())
    turns = [{name: each.turn() for name, each in measured.items()} for _ in range(options.turns)]
    for name in measured:
        training_s, action_s, largest_s = np.median([turn[name] for turn in turns], axis=0)
        ratio = statistics.median(turn[name][0] / turn["linear"][0] for turn in turns)
        yield {
            "head": name,
            "parameters": sizes[name],
            "training_us": 1e6 * training_s,
            "ratio": ratio,
            "action_ms": 1e3 * action_s,
            "largest_ms": 1e3 * largest_s,
        }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["head"],
        f"{row['parameters']:,}",
        f"{row['training_us']:.0f}",
        f"{row['ratio']:.2f}",
        f"{row['action_ms']:.2f}",
        f"{row['largest_ms']:.2f}",
    ]


def _measure(options: HeadTimesOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options), _cells)
    return cli.OK


main = main_of(__file__, HeadTimesOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
