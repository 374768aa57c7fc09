"""When the next control step is due."""

import math
import time
from typing import Literal, Protocol

from fleet_tools.teleoperation.inputs import Inputs

Phase = Literal["ready", "running", "paused"]


class Pace(Protocol):
    """Decides when control steps are due."""

    @property
    def phase(self) -> Phase:
        """Whether the episode waits for the first motion, runs, or waits for a page."""
        ...

    @property
    def fraction(self) -> float:
        """How much of the time until the next step has passed, in [0, 1]."""
        ...

    @property
    def remaining_s(self) -> float:
        """Time until the next step; infinite where it waits for the person."""
        ...

    @property
    def real_time_factor(self) -> float | None:
        """Simulated time over wall time in this episode, without pauses; None before two steps."""
        ...

    def begin(self) -> None:
        """Begins an episode."""
        ...

    def due(self) -> bool:
        """Returns whether the next step is due, which is then taken."""
        ...


class RealTime:
    """Control steps at wall-clock time, from the first motion on, while a page is open.

    A simulation that is slower than the clock is not made up for: the next step is due at once.

    Args:
        inputs: The devices.
        period_s: Duration of a control step, s.
    """

    def __init__(self, inputs: Inputs, period_s: float) -> None:
        self._inputs, self._period = inputs, period_s
        self.begin()

    def begin(self) -> None:
        """Begins an episode, whose clock starts with the first motion."""
        self.phase: Phase = "ready"
        self._steps, self._elapsed = 0, 0.0
        self._last, self._due = 0.0, 0.0

    @property
    def fraction(self) -> float:
        """How much of the time until the next step has passed, in [0, 1]."""
        return 1.0 - min(self.remaining_s / self._period, 1.0) if self.phase == "running" else 1.0

    @property
    def remaining_s(self) -> float:
        """Time until the next step; infinite where it waits for the person."""
        return max(self._due - time.monotonic(), 0.0) if self.phase == "running" else math.inf

    @property
    def real_time_factor(self) -> float | None:
        """Simulated time over wall time in this episode, without pauses; None before two steps."""
        return self._steps * self._period / self._elapsed if self._elapsed > 0 else None

    def due(self) -> bool:
        """Returns whether the next step is due, which is then taken."""
        now = time.monotonic()
        if not self._inputs.watched:
            self.phase = "ready" if self.phase == "ready" else "paused"
            return False
        if self.phase != "running":
            if self.phase == "ready" and not self._inputs.given().moves:
                return False
            self.phase, self._due = "running", now + self._period
            self._last = now
            return True
        if now < self._due:
            return False
        self._steps, self._elapsed = self._steps + 1, self._elapsed + now - self._last
        self._last, self._due = now, max(self._due + self._period, now)
        return True
