"""Losses and success rates of the policies on the line between two policies of a fleet.

These are the paper's barriers (section 3, figures 2a and 2b), before and after alignment. A method
changes the interior of a line; its ends are the two policies, for every method.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, cast

from fleet_merging.average import interpolate
from fleet_merging.barrier import Barrier, lambdas_of, norm_ratios
from fleet_merging.errors import NotInvariantError
from fleet_merging.methods import registry
from fleet_merging.queries.data_holder import DataHolder
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.experiments.form import LineConfig
from fleet_tools.baselines.experiments.success import rates_by_task
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import load_progress
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.federated.rounds import merge_problem, recompute_statistics
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.rollouts import SuccessMeasure, make_success_measure
from fleet_tools.baselines.training.state import DivergedError, Tensors, TrainingError

Rates = dict[str, float]
"""Success rates by task."""

_TOLERANCE = 1e-3
"""Largest relative change of a policy's loss by a permutation of its units."""


@dataclass(frozen=True)
class Aligner:
    """A method that aligns policies.

    Attributes:
        method: Its name, see `merging.methods.registry`.
        options: Its keyword arguments.
    """

    method: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class AlignedPair:
    """The policies of two robots, permuted by a method.

    Attributes:
        models: Their permuted weights.
        moved_fraction: Fraction of the units that alignment moved, see
            `PermutationGroup.moved_fraction`.
    """

    models: tuple[Tensors, Tensors]
    moved_fraction: float | None


def fleet_lines(
    folder: Path,
    plan: FleetPlan,
    aligner: Aligner,
    config: LineConfig,
    scenes: tuple[int, int],
    cells: Cells,
) -> list[dict[str, Any]]:
    """Measures the lines between all pairs of a finished fleet's robots.

    Args:
        folder: Folder of the fleet.
        plan: The fleet.
        aligner: The method.
        config: Points on the lines.
        scenes: Number of the first scene, and number of scenes of each task.
        cells: Store of the measurements.

    Returns:
        For each pair of "robots" the "loss" and, with rollouts, the "success" rate. Each has
        "lambdas", "values", and the "height" of the barrier "at" a lambda. The success rate is the
        mean over tasks, and "by_task" has each task's. "moved" is the fraction of units that
        alignment moved. "norms" has the differences of the aligned policies by parameter (see
        `NormRatio`).

    Raises:
        TrainingError: Fewer than two robots were merged in the last round.
        NotInvariantError: The method's permutations change the loss of a policy.
        DivergedError: A loss is not finite.
    """
    progress = load_progress(folder)
    steps = {each.robot: each.steps for each in progress.rounds[-1].robots if each.steps}
    if len(progress.robot_weights) < 2:
        raise TrainingError(
            f"In the last round of {folder}, {len(progress.robot_weights)} robot was merged; a "
            "line requires two. Give a fleet with more `robots`, or a larger `participation`."
        )
    first, count = scenes
    success = make_success_measure(
        plan.config.data, count, plan.blueprint, first=first, detector=plan.config.detector
    )
    of_fleet = {"fleet": folder.name, "data": plan.content_digest, "first_scene": first}
    run = {**of_fleet, "scenes": count}

    def rates(robot: int) -> Rates:
        weights = progress.robot_weights[robot]
        return cells.get_or_compute(run | {"robot": robot}, lambda: measurer.success_rates(weights))

    measurer = LineMeasurer(plan, progress.robot_weights, steps, config, success, rates)
    depends = {**of_fleet, **asdict(aligner), **config.model_dump()}
    return [
        cells.get_or_compute(
            {**depends, "robots": list(pair)}, partial(measurer.measure, pair, aligner)
        )
        for pair in combinations(sorted(progress.robot_weights), 2)
    ]


class LineMeasurer:
    """Measures lines between the policies of a fleet.

    Args:
        plan: The fleet.
        policies: Weights of each robot before the last merge, by robot number.
        steps: Number of steps of their data in the last round.
        config: Points on the lines.
        measure_success: Runs policies.
        rates: Returns the success rates of a robot's policy, an end of lines.
    """

    def __init__(
        self,
        plan: FleetPlan,
        policies: Mapping[int, Tensors],
        steps: Mapping[int, int],
        config: LineConfig,
        measure_success: SuccessMeasure,
        rates: Callable[[int], Rates],
    ) -> None:
        self._plan, self._policies, self._steps, self._config = plan, policies, steps, config
        self._holders = {robot: FleetClient(plan.assignments[robot]) for robot in policies}
        self._measure_success, self._rates = measure_success, rates

    def measure(self, robots: tuple[int, int], aligner: Aligner) -> dict[str, Any]:
        """Returns an entry of `fleet_lines`.

        Args:
            robots: Numbers of the two robots.
            aligner: The method.

        Raises:
            NotInvariantError, DivergedError: See `fleet_lines`.
        """
        config, aligned = self._config, self.align(robots, aligner)
        first, last = (self._loss(self._policies[robot]) for robot in robots)
        _require_same(aligner.method, (first, last), list(map(self._loss, aligned.models)))

        def on_line(points: int, measure: Callable[[Tensors], Any]) -> list[Any]:
            return [
                measure(recompute_statistics(self._plan, interpolate(*aligned.models, each)))
                for each in lambdas_of(points)[1:-1].tolist()
            ]

        losses = [first, *on_line(config.points, self._loss), last]
        success = None
        if config.rollouts:
            start, end = map(self._rates, robots)
            between = on_line(config.rollout_points, self.success_rates)
            success = success_curve([start, *between, end])
        ratios = norm_ratios(*aligned.models)
        return {
            "robots": list(robots),
            "moved": aligned.moved_fraction,
            "norms": {name: asdict(each) for name, each in ratios.items()},
            "loss": asdict(Barrier.of_losses(lambdas_of(config.points), losses)),
            "success": success,
        }

    def align(self, robots: tuple[int, int], aligner: Aligner) -> AlignedPair:
        """Returns the policies of two robots, permuted as in a merge of the two by a method."""
        problem = merge_problem(
            self._plan,
            self._plan.config.rounds,
            [self._policies[robot] for robot in robots],
            [self._steps[robot] for robot in robots],
            [cast(DataHolder, self._holders[robot]) for robot in robots],
        )
        merged = registry.merge(aligner.method, problem, **aligner.options)
        first, second = problem.permuted(merged.permutations)
        return AlignedPair((first, second), problem.group.moved_fraction(merged.permutations))

    def _loss(self, weights: Tensors) -> float:
        loss = self._plan.held_out_loss(weights)
        if not math.isfinite(loss):
            raise DivergedError(f"a policy has the loss {loss:g} on the held-out episodes")
        return loss

    def success_rates(self, weights: Tensors) -> Rates:
        """Returns the success rates of a policy."""
        return rates_by_task(self._measure_success(Checkpoint(self._plan.blueprint, weights)))


def success_curve(rates: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Returns the barrier of success rates at evenly spaced points, by task."""
    by_task = {task: [each[task] for each in rates] for task in rates[0]}
    means = [sum(each) / len(each) for each in zip(*by_task.values(), strict=True)]
    barrier = Barrier.of_performances(lambdas_of(len(rates)), means)
    return {**asdict(barrier), "by_task": by_task}


def _require_same(method: str, before: Sequence[float], after: Sequence[float]) -> None:
    """Checks that permutations keep the losses of policies."""
    for one, other in zip(before, after, strict=True):
        if abs(other - one) > _TOLERANCE * one:
            raise NotInvariantError(
                f"A policy has the loss {one:.6g}, and {other:.6g} after {method} permuted it. "
                "A line between the trained policies requires hard permutations of the network's "
                "table of axes. Leave this method out, or let it return such permutations."
            )
