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

import pydantic

from fleet_tools.baselines.cells import Cells
from fleet_tools.baselines.fleet.robot import FleetRobot
from fleet_tools.baselines.fleet.rounds import fleet_of, with_statistics
from fleet_tools.baselines.fleet.trained import Trained
from fleet_tools.baselines.merging import registry
from fleet_tools.baselines.merging.average import interpolate
from fleet_tools.baselines.merging.barrier import lambdas_of
from fleet_tools.baselines.merging.errors import NotInvariantError
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.errors import DivergedError
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.rollouts import try_out_in
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.values import Value

_TOLERANCE = 1e-3
"""By how much of itself a policy's loss may be another once its units are reordered."""


class Lines(Value):
    """What is drawn between two policies.

    Attributes:
        methods: That align them, by name, each with its options as text.
        points: On each curve of losses, with both ends; odd.
        rollouts: Scenes of each task in which policies on a line are tried; 0 tries none.
        rollout_points: On each curve of successes, likewise.
    """

    methods: dict[str, dict[str, str]]
    points: int = 11
    rollouts: pydantic.NonNegativeInt = 0
    rollout_points: int = 5

    @pydantic.model_validator(mode="after")
    def _every_curve_has_a_middle(self) -> "Lines":
        lambdas_of(self.points), lambdas_of(self.rollout_points)
        return self


class Job(NamedTuple):
    """What is measured at one go.

    Attributes:
        fleet: Its place among those given.
        robots: Two, or one whose own policy is tried.
        method: That aligns the two.
    """

    fleet: int
    robots: tuple[int, ...]
    method: str | None = None


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
        """Returns the losses on a line, "loss", and of its interior the "rollouts", if any.

        Raises:
            NotInvariantError: The method's permutations change what a policy does.
            DivergedError: A loss is not finite.
        """
        lines, options = self._lines, self._lines.methods[method]
        name = "-".join([*map(str, pair), method])
        aligned = cache(lambda: self.aligned(pair, method))

        def model(at: float) -> Tensors:
            return with_statistics(self._plan, self._held, interpolate(*aligned(), at))

        def losses() -> list[float]:
            ends = [self._loss(self._fleet.policies[robot]) for robot in pair]
            _require_same(method, ends, [self._loss(weights) for weights in aligned()])
            interior = [self._loss(model(at)) for at in lambdas_of(lines.points)[1:-1].tolist()]
            return [ends[0], *interior, ends[1]]

        settings = {"options": options, "points": lines.points}
        loss = self._cells.get(f"{name}-loss", settings, losses)
        rollouts = []
        for place in lambdas_of(lines.rollout_points)[1:-1].tolist() if lines.rollouts else []:
            settings = {"options": options, "rollouts": lines.rollouts}
            came = self._cells.get(
                f"{name}-rollouts-{place:g}", settings, lambda at=place: self._rolled_out(model(at))
            )
            rollouts.append(came)
        return {"loss": loss, "rollouts": rollouts}

    def aligned(self, pair: tuple[int, int], method: str) -> list[dict]:
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
        return of_two.permuted(merged.permutations)

    def _loss(self, weights: Tensors) -> float:
        plan = self._plan
        loss = validate(plan.blueprint, self._held, plan.config.training, weights)
        if not math.isfinite(loss):
            raise DivergedError(f"a policy has the loss {loss:g} on the driver's episodes")
        return loss

    def _rolled_out(self, weights: Tensors) -> dict[str, Any]:
        return self._try_out(Checkpoint(self._plan.blueprint, weights))


def _require_same(method: str, before: Sequence[float], after: Sequence[float]) -> None:
    if any(abs(b - a) > _TOLERANCE * a for a, b in zip(before, after, strict=True)):
        raise NotInvariantError(
            f"Two policies have the losses {_listed(before)}, and {_listed(after)} once {method} "
            "has permuted them. A line leads from one policy to the other only where permutations "
            "are hard, and those of the network's table of axes."
        )


def _listed(losses: Sequence[float]) -> str:
    return " and ".join(f"{loss:.6g}" for loss in losses)


def jobs_of(fleets: Sequence[Trained], lines: Lines) -> list[Job]:
    """Returns all that is to be measured."""
    jobs = []
    for place, fleet in enumerate(fleets):
        if lines.rollouts:
            jobs += [Job(place, (robot,)) for robot in sorted(fleet.policies)]
        jobs += [Job(place, pair, name) for pair in fleet.pairs for name in lines.methods]
    return jobs


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
