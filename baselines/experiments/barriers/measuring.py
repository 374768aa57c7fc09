"""Lines between the policies that a fleet trained: loss and success from one to another.

The paper's barriers (section 3, figures 2a and 2b): policies of one data set, in pairs, as they are
and aligned by a method. What is measured within a line follows from both policies and the method;
its ends are the two policies themselves, whatever the method.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fleet_tools.baselines.experiments.barriers.lines import Job, Lines
from fleet_tools.baselines.experiments.barriers.trained import Trained
from fleet_tools.baselines.experiments.result_cache import Cells
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.baselines.federated.rounds import fleet_of, with_statistics
from fleet_tools.baselines.merging.average import interpolate
from fleet_tools.baselines.merging.barrier import lambdas_of
from fleet_tools.baselines.merging.errors import NotInvariantError
from fleet_tools.baselines.merging.methods import registry
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.errors import DivergedError
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.rollouts import try_out_in
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.baselines.training.trajectories import Trajectories

_TOLERANCE = 1e-3
"""By how much of itself a policy's loss may be another once its units are reordered."""


class Aligned(NamedTuple):
    """Two robots' weights as a method permuted them, and what share of units that moved."""

    models: list[Tensors]
    moved: float | None


class Measuring:
    """Measures lines of one fleet, in this process; every cell is stored as soon as it is there.

    Args:
        fleet: Whose.
        lines: Which.
        folder: For the cells.
    """

    def __init__(self, fleet: Trained, lines: Lines, folder: Path) -> None:
        self._fleet, self._lines = fleet, lines
        self._cells = Cells(folder / fleet.digest)
        plan = fleet.plan
        self._plan, self._held = plan, Trajectories(plan.held, plan.blueprint)
        self._try_out = try_out_in(plan.config.data, lines.rollouts, plan.blueprint)
        self._robots = {robot: FleetRobot(plan.homes[robot].assignment) for robot in fleet.policies}

    def tried(self, robot: int) -> dict[str, Any]:
        """Returns what came of rollouts of a robot's own policy; see `training.rollouts`."""
        settings = {"rollouts": self._lines.rollouts}
        return self._cells.get(
            f"robot-{robot}", settings, lambda: self._rolled_out(self._fleet.policies[robot])
        )

    def line(self, pair: tuple[int, int], method: str) -> dict[str, Any]:
        """Returns what is on a line: its "loss", and of its interior the "rollouts", if any.

        "moved" is the share of units that alignment moved (`PermutationGroup.moved`).

        Raises:
            NotInvariantError: The method's permutations change what a policy does.
            DivergedError: A loss is not finite.
        """
        lines, options = self._lines, self._lines.methods[method]
        name = "-".join([*map(str, pair), method])
        aligned = cache(lambda: self.aligned(pair, method))

        def model(at: float) -> Tensors:
            return with_statistics(self._plan, self._held, interpolate(*aligned().models, at))

        def measured() -> dict[str, Any]:
            ends = [self._loss(self._fleet.policies[robot]) for robot in pair]
            _require_same(method, ends, [self._loss(weights) for weights in aligned().models])
            interior = [self._loss(model(at)) for at in lambdas_of(lines.points)[1:-1].tolist()]
            return {"loss": [ends[0], *interior, ends[1]], "moved": aligned().moved}

        settings = {"options": options, "points": lines.points}
        losses = self._cells.get(f"{name}-loss", settings, measured)
        rollouts = []
        for place in lambdas_of(lines.rollout_points)[1:-1].tolist() if lines.rollouts else []:
            settings = {"options": options, "rollouts": lines.rollouts}
            came = self._cells.get(
                f"{name}-rollouts-{place:g}", settings, lambda at=place: self._rolled_out(model(at))
            )
            rollouts.append(came)
        return {**losses, "rollouts": rollouts}

    def aligned(self, pair: tuple[int, int], method: str) -> Aligned:
        """Returns the weights of two robots, permuted as a method finds in a merge of the two."""
        fleet, config = self._fleet, self._fleet.merging_by(method, self._lines.methods[method])
        of_two = fleet_of(
            self._plan,
            self._held,
            config.rounds,
            [fleet.policies[robot] for robot in pair],
            [fleet.steps[robot] for robot in pair],
            [self._robots[robot] for robot in pair],
        )
        merged = registry.merge(method, of_two, **config.method_options())
        moved = of_two.group.moved(merged.permutations)
        return Aligned(of_two.permuted(merged.permutations), moved)

    def _loss(self, weights: Tensors) -> float:
        plan = self._plan
        loss = validate(plan.blueprint, self._held, plan.config.training, weights)
        if not math.isfinite(loss):
            raise DivergedError(f"a policy has the loss {loss:g} on the driver's episodes")
        return loss

    def _rolled_out(self, weights: Tensors) -> dict[str, Any]:
        return self._try_out(Checkpoint(self._plan.blueprint, weights))


def _require_same(method: str, before: Sequence[float], after: Sequence[float]) -> None:
    for one, other in zip(before, after, strict=True):
        if abs(other - one) > _TOLERANCE * one:
            raise NotInvariantError(
                f"A policy has the loss {one:.6g}, and {other:.6g} once {method} has permuted it. "
                "A line leads from policy to policy only where permutations are hard, and those of "
                "the network's table of axes."
            )


def measuring(
    folders: Sequence[Path], lines: Lines, cells: Path
) -> Callable[[Job], dict[str, Any]]:
    """Returns what does a job in this process.

    Args:
        folders: Of the fleets.
        lines: What is measured.
        cells: The folder of cells.

    Returns:
        Takes a job; returns what `Measuring.tried` or `Measuring.line` does, or {"failed": why}.
    """
    import torch

    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine
    of = lru_cache(1)(lambda place: Measuring(Trained.read(folders[place]), lines, cells))

    def run(job: Job) -> dict[str, Any]:
        try:
            if job.method is None:
                return of(job.fleet).tried(*job.robots)
            return of(job.fleet).line(job.robots, job.method)
        except DivergedError as error:
            return {"failed": str(error)}

    return run
