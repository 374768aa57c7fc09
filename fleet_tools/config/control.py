"""Control of a task: rate, bounds of actions, gains; durations in control steps.

A task file gives times in seconds and motions per second, so that its control rate can be changed
alone.
"""

import functools
from fractions import Fraction
from typing import Annotated, NamedTuple

import pydantic

from fleet_tools.config.values import Positive, Value

TIME_STEP = 0.004
"""Time step of the dynamics, and period of the controller, s.

Certificates divide the step (`fleet_tools.sim.world.build_world`), and never the period.
"""

ControlRate = Annotated[Positive, pydantic.Field(ge=1, le=1 / TIME_STEP)]
"""Number of actions in a second; no more than there are time steps."""


class StepBounds(NamedTuple):
    """Largest motion of the end effector in one control step, along and about each axis."""

    translation_m: float
    rotation_deg: float


class ActionBounds(Value):
    """Speed of the end effector when an action's entry is 1."""

    translation_m_s: Positive = 0.3
    """Along each axis of the end effector."""
    rotation_deg_s: Positive = 90.0
    """About each axis of the end effector."""

    def in_step(self, rate_hz: float) -> StepBounds:
        """Returns the motion in one control step.

        Args:
            rate_hz: Control rate.
        """
        rate = _exact(rate_hz)
        speeds = self.translation_m_s, self.rotation_deg_s
        return StepBounds(*(float(_exact(speed) / rate) for speed in speeds))


@functools.cache
def steps_of(duration_s: float, rate_hz: float) -> int:
    """Returns the number of control steps nearest to a duration, at least one."""
    return max(round(_exact(duration_s) * _exact(rate_hz)), 1)


def _exact(number: float) -> Fraction:
    """Returns a number as it is written: 0.3 m/s at 6 Hz is then the same as 0.05 m."""
    return Fraction(repr(float(number)))
