"""A foreign mesh as a model: every step of the import in its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet_tools.errors import ConfigError

from ..materials import Material
from ..model import Keypoint, Link, Model, Part, files
from ..solids import MassProperties, Solid, join
from .check import contact_problem
from .pieces import convex_pieces
from .polytope import hull, outer_polytope
from .read import RawMesh
from .repair import clean, shells
from .scale import Scale, check_size, guess_scale, rotation_to_z
from .simplify import simplified, sound
from .volume import Body, enclosed, volume

WRITTEN_BY = "# written by the importer: python -m fleet_tools.assets import"

VISUAL_TRIANGLES = 2000
"""Seen at most; cameras render what is seen in every observation."""

THINNEST = 0.0003
"""Of what contact can feel, m; thrice the hydroelastic margin."""

HEAVIEST = 23000.0
"""Density of osmium, kg/m^3, rounded up: nothing is heavier."""

NEAR_SURFACE = 0.01
"""A keypoint farther than this from the surface was probably meant otherwise, m."""


@dataclass(frozen=True)
class Wanted:
    """What the user says of a mesh.

    Attributes:
        kind, family, name: Of the model.
        material: Looks and contact, and the density where `mass` is not given.
        mass: kg, or None.
        keypoints: Positions by name, m in the model's frame; or in the mesh's unit and axes.
        grasp: X_TG as in `Model`, the translation in m.
        points_in: "model" or "mesh": the frame of the keypoints and of the grasp's translation.
        scale: Metres per unit of the file; None to guess.
        length: Longest side, m; None to use the scale.
        up: Axis of the file that becomes z.
        origin: "keep", "base" (centre of the bounding box's underside) or "centre".
        pieces: Convex pieces for contact, at most.
        concavity: Bulge that a convex piece may have, relative to the mesh's size.
        tolerance: Distance that a piece's vertices may have from it, m.
        hull_if_open: Whether a surface beyond repair is replaced by its convex hull.
    """

    kind: str
    family: str
    name: str
    material: Material
    mass: float | None
    keypoints: Mapping[str, tuple[float, float, float]]
    grasp: tuple[float, float, float, float, float, float] | None = None
    points_in: str = "model"
    scale: float | None = None
    length: float | None = None
    up: str = "z"
    origin: str = "keep"
    pieces: int = 8
    concavity: float = 0.05
    tolerance: float = 0.001
    hull_if_open: bool = True


@dataclass(frozen=True)
class Imported:
    """A model, and what the import found, changed and guessed.

    Attributes:
        model: Ready to be written.
        scale: Metres per unit of the file.
        extents: Of the bounding box, m.
        inertial: In the model's frame.
        density: Of the solid, kg/m^3.
        excess: How far what is felt stands out from the convex parts it wraps, at most, m.
        notes: What was repaired or guessed.
        warnings: What the user should look at.
    """

    model: Model
    scale: float
    extents: tuple[float, float, float]
    inertial: MassProperties
    density: float
    excess: float
    notes: list[str]
    warnings: list[str]


def import_mesh(raw: RawMesh, wanted: Wanted) -> Imported:
    """Makes a model of a mesh; a pure function of its arguments.

    Raises:
        ConfigError: The mesh cannot be mended, measured or weighed; the message says how it can.
        MissingLibraryError: It needs a library that is absent.
    """
    surface, notes = clean(raw.vertices, raw.triangles)
    scale = _scale(surface, wanted)
    notes.append(scale.note)
    surface, X = _placed(surface, scale.factor, wanted)
    extents = np.ptp(surface.vertices, axis=0)
    check_size(extents)
    found, more = shells(surface)
    notes += more
    body, more = enclosed(found, hull_if_open=wanted.hull_if_open)
    notes += more
    inertial, density = _weighed(body, wanted)
    points, grasp = _labels(wanted, X)
    part, excess, more = _part(body, wanted)
    notes += more
    model = Model(
        kind=wanted.kind,
        family=wanted.family,
        name=wanted.name,
        links=(Link(wanted.name, (part,), inertial=inertial),),
        keypoints={name: Keypoint(wanted.name, tuple(p)) for name, p in points.items()},
        grasp=grasp,
        written_by=WRITTEN_BY,
    )
    problem = contact_problem(files(model))
    if problem:
        raise ConfigError(
            f"Drake cannot make a contact surface of the mesh: {problem} Try --pieces 1, a larger "
            "--tolerance, or --rigid."
        )
    warnings = [note for note in notes if "not watertight" in note or "no inside" in note]
    warnings += _doubts(body, points, density, inertial, wanted)
    notes = [note for note in notes if note not in warnings]
    size = tuple(float(x) for x in extents)
    return Imported(model, scale.factor, size, inertial, density, excess, notes, warnings)


def _scale(surface: Solid, wanted: Wanted) -> Scale:
    longest = float(np.ptp(surface.vertices, axis=0).max())
    if wanted.length is not None:
        factor = wanted.length / longest
        return Scale(factor, f"scaled by {factor:.6g} to be {wanted.length:g} m long")
    if wanted.scale is not None:
        return Scale(wanted.scale, f"scaled by {wanted.scale:g} to {longest * wanted.scale:.4g} m")
    return guess_scale(longest, wanted.kind)


def _placed(surface: Solid, factor: float, wanted: Wanted) -> tuple[Solid, tuple]:
    """The surface in the model's frame, and the map from the file's points to it."""
    matrix = factor * rotation_to_z(wanted.up)
    vertices = surface.vertices @ matrix.T
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    match wanted.origin:
        case "base":
            origin = np.array([*(low + high)[:2] / 2, low[2]])
        case "centre":
            origin = (low + high) / 2
        case _:
            origin = np.zeros(3)
    return Solid(vertices - origin, surface.triangles), (matrix, origin)


def _weighed(body: Body, wanted: Wanted) -> tuple[MassProperties, float]:
    whole = join(*body.outer, *body.cavities)
    density = wanted.material.density if wanted.mass is None else wanted.mass / volume(whole)
    if density > HEAVIEST:
        raise ConfigError(
            f"{wanted.mass:g} kg in {volume(whole) * 1e6:.3g} cm^3 would be {density:.3g} kg/m^3, "
            "more than any metal: the scale or the mass is wrong. Mend it with --length METRES, "
            "--scale or --mass."
        )
    inertial = body.mass_properties(density)
    moments = np.linalg.eigvalsh(inertial.inertia)
    if not (moments[0] > 0 and moments[2] <= (moments[0] + moments[1]) * (1 + 1e-9)):
        raise ConfigError(
            f"The mesh's moments of inertia {moments} kg m^2 are those of no body: it probably "
            "crosses itself. Make it one surface, for instance with Blender's Remesh modifier."
        )
    return inertial, density


def _labels(wanted: Wanted, X: tuple) -> tuple[dict[str, np.ndarray], tuple | None]:
    matrix, origin = X if wanted.points_in == "mesh" else (np.eye(3), np.zeros(3))
    points = {
        name: np.round(matrix @ np.array(position) - origin, 9)
        for name, position in wanted.keypoints.items()
    }
    if wanted.grasp is None:
        return points, None
    where = matrix @ np.array(wanted.grasp[:3]) - origin
    return points, (*(float(x) for x in where), *wanted.grasp[3:])


def _part(body: Body, wanted: Wanted) -> tuple[Part, float, list[str]]:
    seen = simplified(sound(join(*body.outer)), VISUAL_TRIANGLES)
    share = max(1, wanted.pieces // len(body.outer))
    sets = [
        points
        for solid in body.outer
        for points in convex_pieces(solid, most=share, concavity=wanted.concavity)
    ]
    thick, notes = _thick_enough(sets)
    felt = [
        outer_polytope(points, tolerance=wanted.tolerance, shortest=min(5e-4, thickness / 3))
        for points, thickness in thick
    ]
    part = Part(
        wanted.name, seen, wanted.material, tuple(p.solid for p in felt), collision_places=17
    )
    return part, max(p.excess for p in felt), notes


def _thick_enough(
    sets: list[np.ndarray],
) -> tuple[list[tuple[np.ndarray, float]], list[str]]:
    """Those pieces that contact can feel, each with its thickness in m, and a note on the others:
    decals, threads, sheets.
    """
    measured = [(points, _thickness(points)) for points in sets]
    thick = [(points, thickness) for points, thickness in measured if thickness >= THINNEST]
    thinnest = f"{min(thickness for _, thickness in measured) * 1000:.2g} mm"
    if not thick:
        raise ConfigError(
            f"It is only {thinnest} thick, and contact needs {THINNEST * 1000:g} mm. Thicken it, "
            "for instance with Blender's Solidify modifier; or mend the size with --length METRES."
        )
    left_out = len(sets) - len(thick)
    note = f"{left_out} piece(s), as thin as {thinnest}, are seen and weighed, and not felt"
    return thick, [note] if left_out else []


def _thickness(points: np.ndarray) -> float:
    """Least width along the normals of the points' hull, m; 0 where they lie in a plane."""
    around = hull(points)
    if around is None:
        return 0.0
    a, b, c = np.moveaxis(around.vertices[around.triangles], 1, 0)
    across = np.cross(b - a, c - a)
    areas = np.linalg.norm(across, axis=1)
    real = areas > 1e-9 * areas.max()  # slivers have no direction
    normals = np.unique(np.round(across[real] / areas[real, None], 3), axis=0)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    heights = points @ normals[:: max(1, len(normals) // 300)].T
    return float(np.ptp(heights, axis=0).min())


def _doubts(
    body: Body,
    points: Mapping[str, np.ndarray],
    density: float,
    inertial: MassProperties,
    wanted: Wanted,
) -> list[str]:
    from trimesh.triangles import closest_point

    doubts = []
    corners = np.concatenate([solid.vertices[solid.triangles] for solid in body.outer])
    low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))

    def distance(point: np.ndarray) -> float:
        near = closest_point(corners, np.broadcast_to(point, (len(corners), 3)))
        return float(np.linalg.norm(near - point, axis=1).min())

    for name, point in points.items():
        away = distance(point)
        if away > NEAR_SURFACE:
            doubts.append(
                f"the keypoint {name} is {away:.3g} m from the surface, which lies within "
                f"{_place(low)} and {_place(high)}; points in the file's own unit and axes are "
                "given with --points-in mesh"
            )
    if wanted.mass is not None and density < 20:
        doubts.append(f"{density:.3g} kg/m^3 is lighter than foam: is the size right?")
    if wanted.kind == "tool" and inertial.mass > 2.5:
        doubts.append(f"{inertial.mass:.3g} kg is close to the arm's payload of 3 kg or beyond")
    if wanted.kind == "tool" and wanted.grasp is None:
        away = distance(np.zeros(3))
        if away > 0.03 or (low > 0).any() or (high < 0).any():
            doubts.append(
                f"without --grasp the hand holds the model's origin, which is {away:.3g} m from "
                "the surface; --grasp X,Y,Z says where the handle is held"
            )
    return doubts


def _place(point: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.3g}" for x in point) + ")"
