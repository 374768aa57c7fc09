"""How large a mesh is meant to be: files rarely say, and downloads are often in millimetres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleet_tools.errors import ConfigError

UNITS = {"m": 1.0, "mm": 0.001, "cm": 0.01, "inch": 0.0254}
"""In metres; in the order in which they are tried."""

BELIEVABLE = {"tool": (0.05, 0.6), "object": (0.01, 0.6)}
"""Longest side, m, within which a unit is guessed."""

POSSIBLE = (0.002, 2.0)
"""Longest side, m, of what may be asked for."""

UP = ("x", "y", "z", "-x", "-y", "-z")


@dataclass(frozen=True)
class Scale:
    """Metres in a unit of the file, and why."""

    factor: float
    note: str


def guess_scale(longest: float, kind: str) -> Scale:
    """The first of metres, millimetres, centimetres and inches that gives a believable size.

    Args:
        longest: Side of the bounding box, in the file's unit.
        kind: "tool" or "object".

    Raises:
        ConfigError: None does, or the mesh was normalized to a unit length.
    """
    low, high = BELIEVABLE[kind]
    fits = [unit for unit, metres in UNITS.items() if low <= longest * metres <= high]
    normalized = min(abs(longest - 1), abs(longest - 2)) < 1e-3
    if not fits or normalized:
        why = "looks normalized" if normalized else "fits no unit"
        raise ConfigError(
            f"The mesh's longest side is {longest:.6g}, which {why} for a {kind} of {low} to "
            f"{high} m (tried: {', '.join(UNITS)}). Say how long it is, --length 0.3 (metres), or "
            "what it is measured in, --scale inch."
        )
    unit, *others = fits
    if unit == "m":
        return Scale(1.0, f"taken as metres: its longest side is {longest:.4g} m")
    doubt = [f"{other} would give {longest * UNITS[other]:.3g} m" for other in others]
    hint = f"; {' and '.join(doubt)}: say --scale {others[0]} if so" if others else ""
    size = longest * UNITS[unit]
    return Scale(
        UNITS[unit],
        f"taken as {unit}: its longest side of {longest:.6g} would make a {kind} of {longest:.4g} m"
        f" if it were metres, and makes one of {size:.3g} m{hint}",
    )


def check_size(extents: np.ndarray) -> None:
    """Refuses what is too large or too small to simulate with the rest.

    Args:
        extents: (3,) sides of the bounding box, m.

    Raises:
        ConfigError: It is.
    """
    low, high = POSSIBLE
    if not low <= extents.max() <= high:
        raise ConfigError(
            f"The model would be {extents.max():.3g} m long; {low} to {high} m can be simulated "
            "on this table. Mend it with --length METRES or --scale."
        )


def rotation_to_z(up: str) -> np.ndarray:
    """The rotation (3, 3) that brings an axis of the file to z, by the shortest way."""
    axis = np.zeros(3)
    axis["xyz".index(up[-1])] = -1.0 if up.startswith("-") else 1.0
    if up == "z":
        return np.eye(3)
    if up == "-z":
        return np.diag([1.0, -1.0, -1.0])
    cross = np.cross(axis, [0.0, 0.0, 1.0])
    K = np.array([[0, -cross[2], cross[1]], [cross[2], 0, -cross[0]], [-cross[1], cross[0], 0]])
    return np.eye(3) + K + K @ K  # Rodrigues' formula at a quarter turn
