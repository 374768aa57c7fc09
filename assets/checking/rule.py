"""Rules: a measured quantity, its bounds, and what to do about a model beyond them."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.errors import ConfigError

Unit = Literal["mm", "deg", "kg", "g/cm^3", ""]

_PER_UNIT: Mapping[Unit, float] = {
    "mm": 1e-3,
    "deg": math.pi / 180,
    "kg": 1.0,
    "g/cm^3": 1e3,
    "": 1.0,
}

Values = Mapping[str, float]
"""Measured values in SI units by what was measured, such as a keypoint or a link; "" is the model.
NaN is a value that cannot be measured."""


@dataclass(frozen=True)
class Rule:
    """What a family needs of its models.

    Attributes:
        name: Name of the quantity.
        measure: Measures it.
        unit: Unit in which it is reported.
        low, high: Bounds, in SI units.
        reason: Why the bounds are there: a measurement with the expert, or a requirement.
        remedy: What to change in a model beyond the bounds.
    """

    name: str
    measure: Callable[[ModelGeometry], Values]
    unit: Unit
    low: float = -math.inf
    high: float = math.inf
    reason: str = ""
    remedy: str = ""

    @property
    def needed(self) -> str:
        """The bounds in words, such as "40.2 to 44 mm"."""
        low, high = (f"{bound / _PER_UNIT[self.unit]:.4g}" for bound in (self.low, self.high))
        match math.isfinite(self.low), math.isfinite(self.high):
            case True, True:
                words = f"{low} to {high}"
            case True, False:
                words = f"at least {low}"
            case _:
                words = f"at most {high}"
        return f"{words} {self.unit}".rstrip()


@dataclass(frozen=True)
class Measurement:
    """A measured value under a rule.

    Attributes:
        rule: The rule.
        subject: What was measured, such as a keypoint; empty for the model.
        value: Value in SI units; NaN if it cannot be measured.
        obstacle: Why it cannot be measured.
    """

    rule: Rule
    subject: str
    value: float
    obstacle: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value is within the bounds."""
        return bool(self.rule.low <= self.value <= self.rule.high)

    @property
    def text(self) -> str:
        """The measurement in words, such as "edge thickness 1.42 mm; needed: at most 0.7 mm"."""
        name = f"{self.rule.name} of {self.subject}" if self.subject else self.rule.name
        unit = self.rule.unit
        value = f"{self.value / _PER_UNIT[unit] + 0.0:.3g} {unit}".rstrip()
        if math.isnan(self.value):
            value = self.obstacle or "cannot be measured: the model has nothing there"
        return f"{name} {value}; needed: {self.rule.needed}"

    def as_json(self) -> dict[str, Any]:
        """Returns the measurement as JSON data, in the rule's unit."""
        per_unit = _PER_UNIT[self.rule.unit]
        value, low, high = (
            round(x / per_unit, 6) if math.isfinite(x) else None
            for x in (self.value, self.rule.low, self.rule.high)
        )
        return {
            "name": self.rule.name,
            "subject": self.subject,
            "value": value,
            "unit": self.rule.unit,
            "low": low,
            "high": high,
            "holds": self.holds,
            "text": self.text,
            "reason": self.rule.reason,
            "remedy": self.rule.remedy,
        }


def measure_all(rules: Iterable[Rule], geometry: ModelGeometry) -> list[Measurement]:
    """Measures a model under all rules; a rule whose keypoints are missing is not met."""
    measured = []
    for rule in rules:
        try:
            measured += [Measurement(rule, *item) for item in rule.measure(geometry).items()]
        except KeyError as error:
            missing = f"cannot be measured: the keypoint {error.args[0]} is missing"
            measured.append(Measurement(rule, "", math.nan, missing))
        except ConfigError as error:
            measured.append(Measurement(rule, "", math.nan, f"cannot be measured: {error}"))
    return measured
