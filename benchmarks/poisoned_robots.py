"""One robot of five attacks the merge: `python benchmarks/poisoned_robots.py --data data/* ...`.

The attack replaces the robot's answers to all messages. The server merges as in an experiment, so
that its checks apply: it leaves out a robot with impossible answers. Results are stored one by one,
and the same command resumes.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from scaffold import main_of, report_rows
from tapped_fleets import Tap, TappedTransport, merge_once, robots_of

from fleet_merging.errors import MergingError
from fleet_merging.moments.measurement import Moments
from fleet_merging.moments.mixture import LIMIT, StateMixture
from fleet_merging.robust import RULES
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.experiments.form import merged
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.messages import Answer, LocalUpdate, Message
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import first_weights
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.rollouts import make_success_measure
from fleet_tools.baselines.training.state import DivergedError, Tensors, TrainingError
from fleet_tools.config.values import Count, CountOrZero, parse
from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.episode_file import to_bytes
from fleet_tools.utils import cli

ATTACKER = 4
"""Number of the robot that attacks, of five."""

SCALE, SPREAD = -10.0, 30.0
"""Factor of false weights, and standard deviation of inputs in false moments."""
RUINED = "hammer"
"""Name of the tool with actions that one attacker reverses."""

ATTACKS = {
    "none": "nobody",
    "scaled": "weights times -10",
    "noise": "random weights",
    "reversed": "reversed update",
    "false_moments": "false moments",
    "ruins_hammer": "ruins the hammer",
}

NO_RULE = "no rule exists"
"""Rule of methods without one."""

Keys = dict[str, Any]

COMMON: Keys = {"initialization": "common"}
METHODS: dict[str, dict[str, Keys]] = {
    "naive_average": {
        rule: COMMON | {"method": "naive_average" if rule == "mean" else rule} for rule in RULES
    },
    "head_refit": {
        rule: COMMON | {"method": "head_refit", "options": {"rule": rule}} for rule in RULES
    },
    "concatenation": {NO_RULE: {"last_method": "concatenation"}},
    "density_gated_ensemble": {NO_RULE: {"last_method": "density_gated_ensemble"}},
    "structured_compression": {NO_RULE: {"method": "structured_compression"}},
    "distillation": {
        NO_RULE: {
            "last_method": "distillation",
            "last_options": {
                "mixtures": 32,
                "states": 200000,
                "steps": 20000,
                "batch": 512,
            },
        }
    },
}
"""Keys of `FleetConfig` by method and rule. Those with own initial weights have no rule."""


def ruined_data(folder: str, output: Path) -> str:
    """Returns a dataset's folder; of the tool `RUINED`, a copy with reversed actions.

    Args:
        folder: Folder of the dataset.
        output: Folder of the copy.
    """
    source = Dataset(folder)
    copy = output / "ruined" / Path(folder).as_posix().strip("/").replace("/", "_")
    if source.header.task.name != RUINED:
        return folder
    with DatasetWriter(copy, source.header) as writer:
        for record in source.manifest()[len(writer.records) :]:
            content = None
            if record.file is not None:
                episode = source.episode(record.attempt)
                ruined = replace(episode, actions=-episode.actions)
                content = to_bytes(ruined, record.attempt, source.header.images)
            writer.add(record, content)
    return str(copy)


def tap_of(attack: str, base: Tensors) -> Tap:
    """Returns the tap that replaces the attacker's answers.

    Args:
        attack: One of `ATTACKS`.
        base: The attacker's initial weights.
    """

    def tap(robot: int, message: Message, answer: Answer) -> Answer:
        if robot != ATTACKER or attack in ("none", "ruins_hammer"):
            return answer
        if attack == "false_moments":
            return _false_account(answer)
        if not isinstance(answer, LocalUpdate):
            return answer
        own, generator = answer.weights, torch.Generator().manual_seed(0)
        changes: dict[str, Callable[[str], torch.Tensor]] = {
            "scaled": lambda name: SCALE * own[name],
            "noise": lambda name: torch.randn(own[name].shape, generator=generator),
            "reversed": lambda name: 2 * base[name] - own[name],
        }
        return replace(answer, weights={name: changes[attack](name) for name in own})

    return tap


def _false_account(answer: Any) -> Any:
    """Returns moments or a mixture of data that could exist, far from all states; else the answer.

    Inputs are random and large, and so are labels within the range of actions.
    """
    generator = torch.Generator().manual_seed(0)
    if isinstance(answer, StateMixture):
        size = answer.means.shape[1]
        means = LIMIT * (torch.rand(answer.means.shape, generator=generator) - 0.5)
        spread = (LIMIT / 2) ** 2 * torch.eye(size).expand(len(means), size, size).contiguous()
        return replace(answer, means=means, covariances=spread)
    if not isinstance(answer, dict):
        return answer
    return {name: _false(each, generator) for name, each in answer.items()}


def _false(true: Moments, generator: torch.Generator) -> Moments:
    groups, size, outputs = len(true.inputs), true.inputs.shape[1], true.targets.shape[2]
    rows = SPREAD * torch.randn(groups, 2 * size, size, generator=generator, dtype=torch.float64)
    rows[:, :, -1] = 1.0
    targets = torch.rand(groups, 2 * size, outputs, generator=generator).double() * 2 - 1
    return Moments(rows.mT @ rows / (2 * size), rows.mT @ targets / (2 * size))


class PoisonedRobotsOptions(cli.Options):
    """Merges five robots, one of them an attacker, and runs the policies.

    Rows are methods and robust rules, columns attacks. Cells are solved scenes of all tools, and in
    parentheses of the hammer; without rollouts, the loss on held-out episodes, in thousandths. A *
    marks a merge that left the attacker out.

    Exit codes:
    0: everything is measured.
    1: a merge failed; the table says which.
    """

    data: tuple[Path, ...]
    """Folders of the datasets, one of each tool."""
    output: Path
    """Folder of trained weights and of results; a run adds to it."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Methods to measure."""
    scenes: CountOrZero = 2
    """Number of validation scenes of each tool; 0 measures losses alone."""
    epochs: Count = 60
    """Number of epochs of each robot."""


def _measure(options: PoisonedRobotsOptions) -> int:
    torch.set_num_threads(1)  # so that bits do not depend on the machine
    rows = report_rows(options, ("method", "rule", *ATTACKS.values()), _rows(options), _cells_of)
    failed = any("error" in row[attack] for row in rows for attack in ATTACKS)
    return cli.FAILED if failed else cli.OK


def _rows(options: PoisonedRobotsOptions) -> Iterator[dict[str, Any]]:
    cells = Cells(options.output / "cells")
    for method in options.methods:
        for rule, keys in METHODS[method].items():
            fleet = PoisonedFleet(_config(options, keys), options.output, cells)
            yield {"method": method, "rule": "none" if rule == "mean" else rule} | {
                attack: fleet.measured(attack, options.scenes) for attack in ATTACKS
            }


def _config(options: PoisonedRobotsOptions, keys: Keys) -> FleetConfig:
    base = {
        "data": [str(each) for each in options.data],
        "policy": {"body": {"type": "mlp", "layers": 3, "width": 128}},
        "method": "naive_average",
        "robots": 5,
        "split": {"by": "task", "alpha": 100},
        "training": {
            "epochs": options.epochs,
            "batch_size": 256,
            "schedule": "cosine",
            "seed": 0,
        },
    }
    return parse(FleetConfig, merged(base, keys), "The fleet")


@dataclass(frozen=True, eq=False)
class PoisonedFleet:
    """Five robots, each with a fifth of the episodes of every tool.

    Attributes:
        config: The fleet.
        output: Folder of trained weights.
        cells: Store of the results.
    """

    config: FleetConfig
    output: Path
    cells: Cells

    def measured(self, attack: str, scenes: int) -> dict[str, Any]:
        """Returns the results of a merge under an attack, from the store if they are there.

        Args:
            attack: One of `ATTACKS`.
            scenes: Number of validation scenes of each tool.

        Returns:
            "left_out", by robot; the "loss" on held-out episodes by tool; and with scenes, the
            "solved" ones by tool. Or the "error" that ended the merge.
        """
        settings = {"fleet": self.config.to_json(), "data": self.plan.content_digest}
        return self.cells.get_or_compute(
            settings | {"attack": attack, "scenes": scenes}, lambda: self._merged(attack, scenes)
        )

    def _merged(self, attack: str, scenes: int) -> dict[str, Any]:
        assignments = list(self.plan.assignments)
        last = assignments[ATTACKER]
        if attack == "ruins_hammer":
            data = tuple(ruined_data(folder, self.output) for folder in last.data)
            assignments[ATTACKER] = last.model_copy(update={"data": data})
        tap = tap_of(attack, first_weights(last))
        robots = TappedTransport(robots_of(assignments, self.output), tap)
        try:
            policy, left_out = merge_once(self.plan, robots)
        except (TrainingError, DivergedError, MergingError) as error:
            return {"error": str(error).splitlines()[0]}
        found: dict[str, Any] = {"left_out": left_out, "loss": self._losses(policy)}
        if scenes:
            found["solved"] = self._solved(policy, scenes)
        return found

    def _losses(self, policy: Checkpoint) -> dict[str, float]:
        samples, found = self.plan.held_out, {}
        tools = [each.task for each in samples.episodes]
        for tool in sorted(set(tools)):
            own = samples.subset([k for k, each in enumerate(tools) if each == tool])
            data = Trajectories(own, policy.blueprint)
            found[tool] = validate(policy.blueprint, data, self.config.training, policy.weights)
        return found

    def _solved(self, policy: Checkpoint, scenes: int) -> dict[str, Any]:
        """Returns the solved scenes by tool; equal policies run once."""
        names = sorted(policy.weights)
        digest = hashlib.sha256(save({name: policy.weights[name].clone() for name in names}))

        def run() -> dict[str, Any]:
            measure = make_success_measure(self.config.data, scenes, policy.blueprint)
            rollouts: Any = measure(policy)
            return {tool: each["solved"] for tool, each in rollouts.items()}

        return self.cells.get_or_compute({"policy": digest.hexdigest(), "scenes": scenes}, run)

    @cached_property
    def plan(self) -> FleetPlan:
        """The plan of the fleet."""
        return FleetPlan.of(self.config)


def _cells_of(row: Mapping[str, Any]) -> Sequence[str]:
    return [row["method"], row["rule"], *(_shown(row[attack]) for attack in ATTACKS)]


def _shown(found: Mapping[str, Any]) -> str:
    if "error" in found:
        return "fails"
    star = "*" * bool(found["left_out"])
    if "solved" not in found:
        return f"{1e3 * np.mean(list(found['loss'].values())):.3g}{star}"
    solved = {tool: len(scenes) for tool, scenes in found["solved"].items()}
    return f"{sum(solved.values())} ({solved.get(RUINED, 0)}){star}"


main = main_of(__file__, PoisonedRobotsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
