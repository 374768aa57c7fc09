"""Rules: a measured quantity, its bounds, and what to do about a model beyond them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fleet_tools.assets.model_geometry import LinkGeometry, ModelGeometry, signed_distance
from fleet_tools.assets.usual_sizes import unusual
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
    """Requirements of a family for its models.

    Attributes:
        name: Name of the quantity.
        measure: Measures it.
        unit: Unit in which it is reported.
        low, high: Bounds, in SI units.
        reason: Why the bounds are there: a measurement with the expert, or a requirement.
        remedy: What to change in a model beyond the bounds.
        scales: Whether it is a length that a model of another size may have within the bounds.
    """

    name: str
    measure: Callable[[ModelGeometry], Values]
    unit: Unit
    low: float = -math.inf
    high: float = math.inf
    reason: str = ""
    remedy: str = ""
    scales: bool = False

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
class MeasuredRule:
    """A measured value under a rule.

    Attributes:
        rule: The rule.
        subject: What was measured, such as a keypoint; empty for the model.
        value: Value in SI units; NaN if it cannot be measured.
        obstacle: Why it cannot be measured.
        scaling: Advice on the size of the model, where the value is beyond the bounds.
    """

    rule: Rule
    subject: str
    value: float
    obstacle: str = ""
    scaling: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value is within the bounds."""
        return bool(self.rule.low <= self.value <= self.rule.high)

    @property
    def lacks_keypoint(self) -> bool:
        """Whether it cannot be measured because the model has not all keypoints."""
        return "is missing" in self.obstacle

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
            "remedy": f"{self.scaling} {self.rule.remedy}".strip(),
        }


def measure_all(rules: Iterable[Rule], geometry: ModelGeometry) -> list[MeasuredRule]:
    """Measures a model under all rules; a rule whose keypoints are missing is not met."""
    measured = []
    for rule in rules:
        try:
            measured += [MeasuredRule(rule, *item) for item in rule.measure(geometry).items()]
        except KeyError as error:
            missing = f"cannot be measured: the keypoint {error.args[0]} is missing"
            measured.append(MeasuredRule(rule, "", math.nan, missing))
        except ConfigError as error:
            measured.append(MeasuredRule(rule, "", math.nan, f"cannot be measured: {error}"))
    lengths = [each for each in measured if each.rule.scales and each.value > 0]
    return [
        replace(each, scaling=_scaling(lengths, geometry))
        if each in lengths and not each.holds
        else each
        for each in measured
    ]


def _scaling(lengths: Sequence[MeasuredRule], geometry: ModelGeometry) -> str:
    """Returns in words whether another size of a model brings lengths within their bounds."""
    kind, family = geometry.kind, geometry.family
    if words := unusual(kind, family, geometry.length):
        return f"The size is wrong: {words[0]}. Give `assets import` the right --scale or --length."
    least = max(lengths, key=lambda each: each.rule.low / each.value)
    greatest = min(lengths, key=lambda each: each.rule.high / each.value)
    low, high = least.rule.low / least.value, greatest.rule.high / greatest.value
    if low > high:
        return (
            f"No size of the model is right: the {least.rule.name} needs {low:.3g} times it, and "
            f"the {greatest.rule.name} at most {high:.3g} times it."
        )
    factor = low if low > 1 else high
    size = factor * geometry.length
    if words := unusual(kind, family, size):
        return (
            f"The size is not the cause: with a model {factor:.3g} times as large, {words[0]}. The "
            "keypoints lie elsewhere, or it is another kind of model."
        )
    return f"Scale the model by {low:.3g} to {high:.3g}, such as by --length {size:.3g}."


Measure = Callable[[ModelGeometry], Values]


def of_links(measure: Callable[[LinkGeometry], float]) -> Measure:
    """Returns a measure of each link."""
    return lambda geometry: {name: measure(link) for name, link in geometry.links.items()}


def on_surface(*keypoints: str, high: float, reason: str, remedy: str) -> Rule:
    """Returns the rule that keypoints lie on the surface, up to a distance, m."""

    def measure(geometry: ModelGeometry) -> Values:
        points = {name: geometry.p_M[name] for name in keypoints}
        return {name: abs(signed_distance(geometry.pieces, p)) for name, p in points.items()}

    return Rule("distance from the surface", measure, "mm", high=high, reason=reason, remedy=remedy)


def right_angles(
    axis: tuple[str, str], *others: tuple[str, str], reason: str, remedy: str, deg: float = 0.6
) -> Rule:
    """Returns the rule that axes between keypoints are at right angles to one of them."""

    def measure(geometry: ModelGeometry) -> Values:
        to_axis = geometry.axis(*axis)
        return {
            f"{start}->{end} and {axis[0]}->{axis[1]}": abs(
                math.pi / 2 - angle(geometry.axis(start, end), to_axis)
            )
            for start, end in others
        }

    high = math.radians(deg)
    return Rule(
        "deviation from a right angle", measure, "deg", high=high, reason=reason, remedy=remedy
    )


def angle(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the angle between two unit vectors, rad."""
    return math.atan2(float(np.linalg.norm(np.cross(one, other))), float(one @ other))


def protrusion(
    geometry: ModelGeometry, origin: np.ndarray, direction: np.ndarray, reach: float = 0.02
) -> float:
    """Returns where a line leaves the model nearest to its origin, m; NaN if nowhere within reach.

    Lines here and below have an origin, (3,), m, and a direction, a unit vector (3,).
    """
    ends = [end for _, end in geometry.chords(origin, direction) if abs(end) <= reach]
    return min(ends, key=abs, default=math.nan)


def thickness(
    geometry: ModelGeometry, origin: np.ndarray, direction: np.ndarray, reach: float = 0.005
) -> float:
    """Returns the length of a line within the model, within reach of its origin, m; else NaN."""
    near = [
        (start, end) for start, end in geometry.chords(origin, direction)
        if start <= reach and end >= -reach
    ]  # fmt: skip
    return max((end - start for start, end in near), default=math.nan)


def most(values: Iterable[float]) -> float:
    """Returns the largest of those values that are not NaN; NaN if all are."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def gap(geometry: ModelGeometry, origin: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
    """Returns the free lengths of a line on both sides of its origin, backwards and forwards, m.

    They are 0 if the origin is inside the model, and infinite where the line meets nothing.
    """
    chords = geometry.chords(origin, direction)
    if any(start < 0 < end for start, end in chords):
        return 0.0, 0.0
    back = min((-end for _, end in chords if end <= 0), default=math.inf)
    ahead = min((start for start, _ in chords if start >= 0), default=math.inf)
    return back, ahead


def perpendicular(direction: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns the part of a unit vector that is perpendicular to another one, as a unit vector.

    Raises:
        ConfigError: They are parallel.
    """
    part = direction - (direction @ other) * other
    length = np.linalg.norm(part)
    if length < 1e-6:
        raise ConfigError(
            "Two axes between keypoints are parallel, but must not be. Move a keypoint."
        )
    return part / length


def ring(axis: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yields unit vectors around an axis, (3,), at equal angles."""
    first = perpendicular(np.eye(3)[int(np.argmin(np.abs(axis)))], axis)
    second = np.cross(axis, first)
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        yield np.cos(angle) * first + np.sin(angle) * second
