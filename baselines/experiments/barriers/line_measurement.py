"""Losses and success rates of the policies on the line between two policies of a fleet.

These are the paper's barriers (section 3, figures 2a and 2b), between policies as they are and
aligned by a method. The interior of a line depends on both policies and the method; its ends are
the two policies, for every method.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from fleet_tools.baselines.experiments.barriers.line_config import LineConfig
from fleet_tools.baselines.experiments.barriers.trained_fleet import TrainedFleet
from fleet_tools.baselines.experiments.job_runner import FailedJob
from fleet_tools.baselines.experiments.result_cache import ResultCache
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.baselines.federated.rounds import merge_problem, recompute_statistics
from fleet_tools.baselines.merging.average import interpolate
from fleet_tools.baselines.merging.barrier import lambdas_of
from fleet_tools.baselines.merging.errors import NotInvariantError, UnsoundMergeError
from fleet_tools.baselines.merging.methods import registry
from fleet_tools.baselines.merging.norm_ratios import NormRatio, norm_ratios
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.rollouts import TaskSuccesses, make_success_measure
from fleet_tools.baselines.training.state import DivergedError, Tensors

_TOLERANCE = 1e-3
"""Largest relative change of a policy's loss by a permutation of its units."""

Rollouts = Mapping[str, TaskSuccesses]
"""Results of rollouts, by task."""


@dataclass(frozen=True)
class LineJob:
    """A line to be measured.

    Attributes:
        fleet: Index of the fleet.
        robots: Numbers of the two robots.
        method: Method that aligns them.
    """

    fleet: int
    robots: tuple[int, int]
    method: str


@dataclass(frozen=True)
class RobotJob:
    """A robot whose policy is to be evaluated in rollouts.

    Attributes:
        fleet: Index of the fleet.
        robot: Number of the robot.
    """

    fleet: int
    robot: int


@dataclass(frozen=True)
class LineMeasurement:
    """Measurements on a line.

    Attributes:
        losses: Losses on the held-out episodes, at the points of the line.
        moved_fraction: Fraction of the units that alignment moved, see
            `PermutationGroup.moved_fraction`.
        norm_ratios: How much the two aligned policies differ, by parameter.
        rollouts: Rollouts at the points between the ends; empty without rollouts.
    """

    losses: Sequence[float]
    moved_fraction: float | None
    norm_ratios: Mapping[str, NormRatio]
    rollouts: Sequence[Rollouts]


@dataclass(frozen=True)
class RobotMeasurement:
    """Measurements of a robot's policy, an end of lines.

    Attributes:
        rollouts: Rollouts of the policy.
    """

    rollouts: Rollouts


Job = LineJob | RobotJob
Measurement = LineMeasurement | RobotMeasurement


@dataclass(frozen=True)
class AlignedPair:
    """The policies of two robots, permuted by a method.

    Attributes:
        models: Their permuted weights.
        moved_fraction: Fraction of the units that alignment moved.
    """

    models: tuple[Tensors, Tensors]
    moved_fraction: float | None


def line_jobs(fleets: Sequence[TrainedFleet], config: LineConfig) -> list[Job]:
    """Returns all that is to be measured."""
    jobs: list[Job] = []
    for index, fleet in enumerate(fleets):
        if config.rollouts:
            jobs += [RobotJob(index, robot) for robot in sorted(fleet.policies)]
        jobs += [LineJob(index, pair, name) for pair in fleet.pairs for name in config.methods]
    return jobs


def make_measure(
    folders: Sequence[Path], config: LineConfig, cache_folder: Path
) -> Callable[[Job], Measurement | FailedJob]:
    """Returns a function that does a job in this process.

    Args:
        folders: Folders of the fleets.
        config: Configuration of the lines.
        cache_folder: Folder of the results.
    """
    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine

    @lru_cache(1)
    def measurer(fleet: int) -> LineMeasurer:
        return LineMeasurer(TrainedFleet.read(folders[fleet]), config, cache_folder)

    def measure(job: Job) -> Measurement | FailedJob:
        try:
            if isinstance(job, RobotJob):
                return measurer(job.fleet).measure_robot(job.robot)
            return measurer(job.fleet).measure_line(job.robots, job.method)
        except (DivergedError, UnsoundMergeError) as error:
            return FailedJob(str(error))

    return measure


class LineMeasurer:
    """Measures lines between the policies of a fleet, and stores each result at once.

    Args:
        fleet: The fleet.
        config: Configuration of the lines.
        cache_folder: Folder of the results.
    """

    def __init__(self, fleet: TrainedFleet, config: LineConfig, cache_folder: Path) -> None:
        self._fleet, self._plan, self._config = fleet, fleet.plan, config
        self._method_options = config.method_options()
        self._cache = ResultCache(cache_folder / fleet.digest)
        self._measure_success = make_success_measure(
            fleet.plan.config.data, config.rollouts, fleet.plan.blueprint
        )
        assignments = fleet.plan.assignments
        self._data_holders = {robot: FleetRobot(assignments[robot]) for robot in fleet.policies}

    def measure_robot(self, robot: int) -> RobotMeasurement:
        """Returns the rollouts of a robot's policy."""
        roll_out = partial(self._roll_out, self._fleet.policies[robot])
        settings = {"rollouts": self._config.rollouts}
        return RobotMeasurement(self._cache.get_or_compute(f"robot-{robot}", settings, roll_out))

    def measure_line(self, robots: tuple[int, int], method: str) -> LineMeasurement:
        """Returns the measurements on a line.

        Args:
            robots: Numbers of the two robots.
            method: Method that aligns their policies.

        Raises:
            NotInvariantError: The method's permutations change the loss of a policy.
            DivergedError: A loss is not finite.
        """
        config, options = self._config, self._method_options[method]
        name = f"{robots[0]}-{robots[1]}-{method}"
        aligned = cache(partial(self.align, robots, method))

        def model(coefficient: float) -> Tensors:
            return recompute_statistics(self._plan, interpolate(*aligned().models, coefficient))

        def measure_losses() -> dict[str, Any]:
            first, last = (self._loss(self._fleet.policies[robot]) for robot in robots)
            _require_same(method, (first, last), [self._loss(each) for each in aligned().models])
            interior = [self._loss(model(each)) for each in _interior(config.points)]
            norms = {key: asdict(each) for key, each in norm_ratios(*aligned().models).items()}
            moved = aligned().moved_fraction
            return {"loss": [first, *interior, last], "moved": moved, "norms": norms}

        settings = {"options": options, "points": config.points, "norms": True}
        losses = self._cache.get_or_compute(f"{name}-loss", settings, measure_losses)
        ratios = {key: NormRatio(**each) for key, each in losses["norms"].items()}
        settings = {"options": options, "rollouts": config.rollouts}
        rollouts = [
            self._cache.get_or_compute(
                f"{name}-rollouts-{each:g}", settings, lambda each=each: self._roll_out(model(each))
            )
            for each in (_interior(config.rollout_points) if config.rollouts else [])
        ]
        return LineMeasurement(losses["loss"], losses["moved"], ratios, rollouts)

    def align(self, robots: tuple[int, int], method: str) -> AlignedPair:
        """Returns the policies of two robots, permuted as a method does to merge the two."""
        fleet = self._fleet
        config = fleet.config_with(method, self._method_options[method])
        problem = merge_problem(
            self._plan,
            config.rounds,
            [fleet.policies[robot] for robot in robots],
            [fleet.steps[robot] for robot in robots],
            [self._data_holders[robot] for robot in robots],
        )
        merged = registry.merge(method, problem, **config.method_options())
        first, second = problem.permuted(merged.permutations)
        return AlignedPair((first, second), problem.group.moved_fraction(merged.permutations))

    def _loss(self, weights: Tensors) -> float:
        loss = self._plan.held_out_loss(weights)
        if not math.isfinite(loss):
            raise DivergedError(f"a policy has the loss {loss:g} on the held-out episodes")
        return loss

    def _roll_out(self, weights: Tensors) -> dict[str, Any]:
        return dict(self._measure_success(Checkpoint(self._plan.blueprint, weights)) or {})


def _interior(points: int) -> list[float]:
    """Returns the lambdas between the ends of a line."""
    return lambdas_of(points)[1:-1].tolist()


def _require_same(method: str, before: Sequence[float], after: Sequence[float]) -> None:
    """Checks that permutations did not change the losses of policies."""
    for one, other in zip(before, after, strict=True):
        if abs(other - one) > _TOLERANCE * one:
            raise NotInvariantError(
                f"A policy has the loss {one:.6g}, and {other:.6g} after {method} permuted it. "
                "A line between the trained policies requires hard permutations of the network's "
                "table of axes. Leave this method out, or let it return such permutations."
            )
