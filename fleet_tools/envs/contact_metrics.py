"""Contact metrics of an episode: forces, work, time and path; limits of gentle success.

All values follow from the simulation (`fleet_tools.sim.hand_force`) and add up over control steps,
so that an episode that runs again has the same ones.
"""

from typing import Self

import numpy as np
import pydantic

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import GentleLimits
from fleet_tools.config.values import NonNegative, Number, Value
from fleet_tools.sim.hand_force import HandForces
from fleet_tools.sim.world_state import WorldState

_FACTOR, _FLOOR = 2.0, 5.0
"""Up to which values of the same episode on two processors agree, in N, N s, J, s and m."""

_ROUNDING_N = 1e-300
"""Rounding of numbers that are too small for a relative bound, N."""


class Load(Value):
    """Contact force of the hand on objects or on the table, over an episode.

    Attributes:
        peak_N: Largest force, as the mean of a period of the controller (4 ms), N.
        impulse_Ns: Time integral of the size of the force, N s.
        contact_s: Time in contact, s.
    """

    peak_N: NonNegative = 0.0
    impulse_Ns: NonNegative = 0.0
    contact_s: NonNegative = 0.0

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mean_N > self.peak_N * (1 + 1e-9) + _ROUNDING_N:
            raise ValueError(f"the mean force is {self.mean_N} N, above the peak, {self.peak_N} N")
        return self

    @property
    def mean_N(self) -> float:
        """Mean force while in contact, N; 0 without contact."""
        return self.impulse_Ns / self.contact_s if self.contact_s else 0.0

    def and_then(self, peak_N: float, impulse_Ns: float, contact_s: float) -> "Load":
        """Returns the load with another control step."""
        if not contact_s:
            return self
        return Load(
            peak_N=max(self.peak_N, peak_N),
            impulse_Ns=self.impulse_Ns + impulse_Ns,
            contact_s=self.contact_s + contact_s,
        )


class ContactMetrics(Value):
    """The contact metrics of an episode up to now.

    Attributes:
        object: Load of the hand (arm and tool) on moving links of the object, or of all objects.
        table: Its load on the table, and on links of objects that are fixed to the world.
        table_work_J: Work that the hand did while it touched the table. The table does not move:
            friction and impact take it.
        time_s: Time, s.
        hand_path_m: Length of the way of the end effector, by straight lines between the ends of
            control steps, m.
        joint_limit_s: Time in which a limit of a joint (its range, speed or torque) slowed the arm.
    """

    object: Load = Load()
    table: Load = Load()
    table_work_J: Number = 0.0
    time_s: NonNegative = 0.0
    hand_path_m: NonNegative = 0.0
    joint_limit_s: NonNegative = 0.0

    @pydantic.model_validator(mode="after")
    def _within_time(self) -> Self:
        longest = max(self.object.contact_s, self.table.contact_s)
        if longest > self.time_s + TIME_STEP:  # the last step may reach beyond the episode
            raise ValueError(f"contact lasts {longest} s, longer than the episode, {self.time_s} s")
        return self

    def after(self, before: WorldState, now: WorldState) -> "ContactMetrics":
        """Returns the contact metrics after another control step.

        Args:
            before: State at its beginning.
            now: State at its end.
        """
        done: HandForces = now.hand_forces
        way = now.X_WE.translation() - before.X_WE.translation()
        limits = sum(float(seconds.sum()) for seconds in now.limit_times.values())
        return ContactMetrics(
            object=self.object.and_then(done.object_peak_N, done.object_impulse_Ns, done.object_s),
            table=self.table.and_then(done.table_peak_N, done.table_impulse_Ns, done.table_s),
            table_work_J=self.table_work_J + done.table_work_J,
            time_s=self.time_s + (now.time - before.time),
            hand_path_m=self.hand_path_m + float(np.sqrt(way @ way)),
            joint_limit_s=self.joint_limit_s + limits,
        )

    def numbers(self) -> dict[str, float]:
        """Returns the values by name, as `info` and tables have them."""
        return {
            "object_peak_N": self.object.peak_N,
            "object_mean_N": self.object.mean_N,
            "table_peak_N": self.table.peak_N,
            "table_mean_N": self.table.mean_N,
            "table_work_J": self.table_work_J,
            "time_s": self.time_s,
            "hand_path_m": self.hand_path_m,
            "joint_limit_s": self.joint_limit_s,
        }

    def resembles(self, other: "ContactMetrics") -> bool:
        """Returns whether both may be of one episode, on processors that round differently.

        Contact magnifies the least difference, so that only a factor of two is told apart.
        """
        theirs = other.numbers()
        return all(
            max(one, theirs[name]) <= _FACTOR * max(min(one, theirs[name]), 0.0) + _FLOOR
            for name, one in self.numbers().items()
        )


UNTOUCHED = ContactMetrics()
"""Contact metrics at the start of an episode."""


def is_gentle(
    limits: GentleLimits | None, success: bool, contact_metrics: ContactMetrics
) -> bool | None:
    """Returns whether an episode is a gentle success.

    Args:
        limits: Limits of its task.
        success: Whether it succeeded; without success nothing is gentle.
        contact_metrics: How it was handled.

    Returns:
        None if the task has no limits.
    """
    if limits is None:
        return None
    numbers = contact_metrics.numbers()
    return success and all(numbers[name] <= limit for name, limit in limits)
