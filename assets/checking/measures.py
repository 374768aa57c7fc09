"""Measures that the rules of several families share; each returns values in SI units."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from fleet_tools.assets.checking.convex_pieces import signed_distance
from fleet_tools.assets.checking.model_geometry import LinkGeometry, ModelGeometry
from fleet_tools.assets.checking.rule import Values
from fleet_tools.errors import ConfigError

Measure = Callable[[ModelGeometry], Values]


def of_links(measure: Callable[[LinkGeometry], float]) -> Measure:
    """Returns a measure of each link."""
    return lambda geometry: {name: measure(link) for name, link in geometry.links.items()}


def surface_distance(*keypoints: str) -> Measure:
    """Returns the measure of keypoints' distances from the surface, inside or outside, m."""

    def measure(geometry: ModelGeometry) -> Values:
        points = {name: geometry.p_M[name] for name in keypoints}
        return {name: abs(signed_distance(geometry.pieces, p)) for name, p in points.items()}

    return measure


def keypoint_distance(one: str, other: str) -> Measure:
    """Returns the measure of the distance between two keypoints, m."""
    return lambda geometry: {
        f"{one} and {other}": float(np.linalg.norm(geometry.p_M[one] - geometry.p_M[other]))
    }


def axis_angle(one: tuple[str, str], other: tuple[str, str]) -> Measure:
    """Returns the measure of the deviation of two keypoint axes from a right angle, rad."""
    subject = " and ".join(f"{start}->{end}" for start, end in (one, other))
    return lambda geometry: {
        subject: abs(math.pi / 2 - angle(geometry.axis(*one), geometry.axis(*other)))
    }


def angle(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the angle between two unit vectors, rad."""
    return math.atan2(float(np.linalg.norm(np.cross(one, other))), float(one @ other))


def protrusion(
    geometry: ModelGeometry, origin: np.ndarray, direction: np.ndarray, reach: float = 0.02
) -> float:
    """Returns where a line leaves the model nearest to its origin, m; NaN if nowhere within reach.

    Args:
        geometry: The model.
        origin: Point of the line at 0, (3,), m.
        direction: Unit vector, (3,).
        reach: Largest distance from the origin, m.
    """
    ends = [end for _, end in geometry.chords(origin, direction) if abs(end) <= reach]
    return min(ends, key=abs, default=math.nan)


def thickness(
    geometry: ModelGeometry, origin: np.ndarray, direction: np.ndarray, reach: float = 0.005
) -> float:
    """Returns the length of a line within the model near its origin, m; NaN if it is outside.

    Args:
        geometry: The model.
        origin: Point of the line at 0, (3,), m.
        direction: Unit vector, (3,).
        reach: Largest distance of that part of the line from the origin, m.
    """
    near = [
        (start, end) for start, end in geometry.chords(origin, direction)
        if start <= reach and end >= -reach
    ]  # fmt: skip
    return max((end - start for start, end in near), default=math.nan)


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


def across(direction: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns the part of a unit vector that is perpendicular to another one, as a unit vector.

    Raises:
        ConfigError: They are parallel.
    """
    part = direction - (direction @ other) * other
    length = np.linalg.norm(part)
    if length < 1e-6:
        raise ConfigError("Two axes between keypoints are parallel that must not be.")
    return part / length


def ring(axis: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Yields unit vectors around an axis, (3,), at equal angles."""
    first = across(np.eye(3)[int(np.argmin(np.abs(axis)))], axis)
    second = np.cross(axis, first)
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        yield np.cos(angle) * first + np.sin(angle) * second
