"""What is drawn between the policies of fleets: as a value, and as jobs, one for each line."""

from collections.abc import Sequence
from typing import NamedTuple

import pydantic

from fleet_tools.baselines.experiments.barriers.trained import Trained
from fleet_tools.baselines.merging.barrier import lambdas_of
from fleet_tools.config.values import Value


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


def jobs_of(fleets: Sequence[Trained], lines: Lines) -> list[Job]:
    """Returns all that is to be measured."""
    jobs = []
    for place, fleet in enumerate(fleets):
        if lines.rollouts:
            jobs += [Job(place, (robot,)) for robot in sorted(fleet.policies)]
        jobs += [Job(place, pair, name) for pair in fleet.pairs for name in lines.methods]
    return jobs
