"""Collision geometry of a body: convex pieces for Drake's contact."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist
from trimesh.triangles import closest_point

from fleet_tools.assets.model_description import Position
from fleet_tools.assets.solids import Solid, area_vectors, distances_to_triangles, joined, leaning
from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.convex_decomposition import REACH, convex_pieces
from fleet_tools.studio.importing.enclosed_body import EnclosedBody, convex_hull, winding_numbers
from fleet_tools.studio.importing.outer_polytope import Polytope, outer_polytope
from fleet_tools.studio.importing.settings import GeometrySettings
from fleet_tools.utils.progress import Tell, silent

if TYPE_CHECKING:
    from pydrake.geometry import SceneGraph
    from pydrake.multibody.plant import MultibodyPlant
    from pydrake.systems.framework import DiagramBuilder

LEAST_THICKNESS = 0.0003
"""Least thickness of a piece that can make contact, m; three times the hydroelastic margin."""


NUMBERS = (8, 16, 32)
"""Numbers of pieces that are tried, until the geometry is close enough to the mesh near the
keypoints."""

COARSE, FINE = 20, 32
"""Largest number of planes of a piece, and of one that would exceed the fidelity with so few."""


@dataclass(frozen=True)
class CollisionGeometry:
    """Collision geometry of a body.

    Attributes:
        solids: Convex solids, at each of whose vertices three planes meet.
        excess: Largest distance of a solid's vertex from the convex piece that it encloses, m.
        deviations: Distance from the mesh near each keypoint, m, by its name (`fidelity`).
        notes: Notes on pieces that were left out.
    """

    solids: tuple[Solid, ...]
    excess: float
    deviations: dict[str, float]
    notes: list[str]

    @property
    def deviation(self) -> float:
        """Largest distance from the mesh near the keypoints, m."""
        return max(self.deviations.values(), default=0.0)


def collision_geometry(
    body: EnclosedBody,
    keypoints: Mapping[str, Position],
    settings: GeometrySettings,
    tell: Tell = silent,
) -> CollisionGeometry:
    """Decomposes a body into as many convex pieces as fit it well near its keypoints.

    Raises:
        ConfigError: The body is too thin for contact.
        MissingLibraryError: The body is not convex, and a library is absent.
    """
    solids = body.parts if len(body.parts) <= settings.pieces else body.outer
    points = np.array([*keypoints.values()]).reshape(-1, 3)
    best, count = None, 0
    for number in sorted({min(number, settings.pieces) for number in NUMBERS}):
        tell(f"decomposing into at most {number} convex pieces")
        pieces, failures = convex_pieces(solids, settings.concavity, number, points)
        if best is not None and len(pieces) <= count:
            break  # there are no more
        count = len(pieces)
        tell(f"simplifying {count} convex pieces, and measuring them at the keypoints")
        found = _geometry_of_pieces(body, keypoints, settings, pieces)
        if failures:  # the first one says it; others are of the same kind
            note = (
                f"the collision geometry is coarser: {failures[0]} {len(found.solids)} convex "
                "piece(s) are kept"
            )
            found = replace(found, notes=[*found.notes, note])
        if best is None or found.deviation < 0.9 * best.deviation:
            best = found
        if best.deviation <= settings.fidelity or len(found.solids) < 0.75 * number:
            break  # it fits, or more pieces would not make it fit
    assert best is not None
    return best


def _geometry_of_pieces(
    body: EnclosedBody,
    keypoints: Mapping[str, Position],
    settings: GeometrySettings,
    pieces: Sequence[np.ndarray],
) -> CollisionGeometry:
    """Encloses each convex piece that is thick enough in a simple polytope."""
    measured = [(points, _thickness(points)) for points in pieces]
    thick = [(points, thickness) for points, thickness in measured if thickness >= LEAST_THICKNESS]
    thinnest = f"{min(thickness for _, thickness in measured) * 1000:.2g} mm"
    if not thick:
        raise ConfigError(
            f"The mesh is only {thinnest} thick, but contact needs at least "
            f"{LEAST_THICKNESS * 1000:g} mm. Thicken it, for instance with Blender's Solidify "
            "modifier."
        )
    omitted = len(pieces) - len(thick)
    note = (
        f"{omitted} piece(s), as thin as {thinnest}, have mass and visual geometry, and no "
        "collision geometry"
    )
    found = [_enclosing(points, thickness, settings) for points, thickness in thick]
    solids = tuple(leaning(polytope.solid) for polytope in found)
    return CollisionGeometry(
        solids,
        max(polytope.excess for polytope in found),
        deviations(body, solids, keypoints),
        [note] if omitted else [],
    )


def _enclosing(points: np.ndarray, thickness: float, settings: GeometrySettings) -> Polytope:
    """Returns the tightest of the polytopes, with few planes or more, that Drake can use."""
    from pydrake.geometry import Convex

    from fleet_tools.sim.contact_meshes import mend_alone
    from fleet_tools.sim.world import HYDROELASTIC_MARGIN

    best = outer_polytope(
        points, tolerance=settings.tolerance, shortest=min(5e-4, thickness / 3), max_planes=COARSE
    )
    for shortest in (3e-4, 2e-4):
        if best.excess <= settings.fidelity:
            break
        fine = outer_polytope(
            points,
            tolerance=settings.fidelity,
            shortest=min(shortest, thickness / 3),
            max_planes=FINE,
        )
        mended = mend_alone(Convex(fine.solid.vertices.T, "piece"), HYDROELASTIC_MARGIN)
        if fine.excess < best.excess and not (mended.without_margin or mended.error):
            best = fine
    return best


def _thickness(points: np.ndarray) -> float:
    """Returns the least width along the normals of the points' hull, m; 0 if they are coplanar."""
    hull = convex_hull(points)
    if hull is None:
        return 0.0
    vectors = area_vectors(hull.vertices[hull.triangles])
    areas = np.linalg.norm(vectors, axis=1)
    regular = areas > 1e-9 * areas.max()  # slivers have no direction
    normals = np.unique(np.round(vectors[regular] / areas[regular, None], 3), axis=0)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    heights = points @ normals[:: max(1, len(normals) // 300)].T
    return float(np.ptp(heights, axis=0).min())


SPACING = 0.002
"""Distance between sample points, m."""

MAX_SAMPLES = 1500
"""Number of sample points near a keypoint."""

NEGLIGIBLE = 5e-5
"""Deviation that is not looked into, m."""


def deviations(
    body: EnclosedBody, solids: Sequence[Solid], keypoints: Mapping[str, Position]
) -> dict[str, float]:
    """Returns how far collision geometry, convex solids, and mesh are apart near each keypoint, m.

    That is the largest distance of a sample point of the collision geometry outside of the mesh
    from the mesh, or of a sample point of the mesh outside of the collision geometry from it.
    Nothing touches the walls of cavities: they are no part of the mesh here, and inside of it.
    """
    outside = joined(*body.outer)
    mesh, collision = _corners(body.outer), _corners(solids)
    result = {}
    for name, position in keypoints.items():
        point = np.array(position)
        distance = distances_to_triangles(point, mesh)
        reach = REACH + float(distance.min())
        near = mesh[distance < 3 * reach]
        excess = _excess(_samples_near(point, reach, collision), near, outside)
        gap = distance_outside(_samples_near(point, reach, mesh), solids)
        result[name] = max(excess, gap)
    return result


def _corners(solids: Iterable[Solid]) -> np.ndarray:
    return np.concatenate([solid.vertices[solid.triangles] for solid in solids])


def _samples_near(centre: np.ndarray, radius: float, corners: np.ndarray) -> np.ndarray:
    """Returns points on triangles within a ball, about `SPACING` apart, (n, 3)."""
    points = [np.zeros((0, 3))]
    for triangle in corners[distances_to_triangles(centre, corners) < radius]:
        sides = np.linalg.norm(np.roll(triangle, -1, axis=0) - triangle, axis=1)
        a, b, c = np.roll(triangle, 1 - int(np.argmin(sides)), axis=0)  # bc is the shortest side
        along = np.linspace(0, 1, 2 + int(sides.max() / SPACING))[:, None, None]
        across = np.linspace(0, 1, 2 + int(sides.min() / SPACING))[:, None]
        grid = (a + along * (b + across * (c - b) - a)).reshape(-1, 3)
        points.append(grid[np.linalg.norm(grid - centre, axis=1) < radius])
    found = np.concatenate(points)
    _, first = np.unique(np.round(found / (SPACING / 4)), axis=0, return_index=True)
    return found[first][:: 1 + len(first) // MAX_SAMPLES]


def _excess(points: np.ndarray, corners: np.ndarray, surface: Solid) -> float:
    """Returns the largest distance from triangles of those points that are outside of a body, m."""
    distance = _distances(points, corners)
    far = np.argsort(-distance)[: np.count_nonzero(distance >= NEGLIGIBLE)]
    for k in range(0, len(far), 8):  # mostly the first ones are outside
        few = far[k : k + 8]
        outside = np.abs(winding_numbers(points[few], surface)) < 0.5
        if outside.any():
            return float(distance[few][outside].max())
    return 0.0


def _distances(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Returns the distance of each point, (n, 3), from the nearest triangle, (n,), m."""
    middles = corners.mean(axis=1)
    radii = np.linalg.norm(corners - middles[:, None], axis=2).max(axis=1)
    found, step = [np.zeros(0)], max(1, 1_000_000 // len(corners))
    for some in (points[k : k + step] for k in range(0, len(points), step)):
        away = cdist(some, middles)
        # Triangles whose ball is farther than the far end of another one are not the nearest.
        rows, columns = np.nonzero(away - radii <= (away + radii).min(axis=1, keepdims=True))
        exact = closest_point(corners[columns], some[rows]) - some[rows]
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        found.append(np.minimum.reduceat(np.linalg.norm(exact, axis=1), first))
    return np.concatenate(found)


def distance_outside(points: np.ndarray, solids: Sequence[Solid]) -> float:
    """Returns how far points, (n, 3), lie beyond the planes of all convex solids, at most, m."""
    heights = np.full(len(points), np.inf)
    for solid in solids:
        corners = solid.vertices[solid.triangles]
        normals = area_vectors(corners)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        offsets = (normals * corners[:, 0]).sum(axis=1)
        heights = np.minimum(heights, (points @ normals.T - offsets).max(axis=1))
    return float(max(0.0, heights.max(initial=0.0)))


def empty_plant() -> "tuple[MultibodyPlant, SceneGraph, DiagramBuilder]":
    """Returns a plant whose shapes have the hydroelastic margin of a world, not finalized."""
    from pydrake.geometry import SceneGraphConfig
    from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
    from pydrake.systems.framework import DiagramBuilder

    from fleet_tools.sim.world import HYDROELASTIC_MARGIN, TIME_STEP

    builder, config = DiagramBuilder(), SceneGraphConfig()
    config.default_proximity_properties.margin = HYDROELASTIC_MARGIN
    plant, scene_graph = AddMultibodyPlant(
        MultibodyPlantConfig(time_step=TIME_STEP), config, builder
    )
    return plant, scene_graph, builder


def contact_error(files: Mapping[str, bytes]) -> str | None:
    """Makes the hydroelastic geometry of a model folder as the simulator would.

    Args:
        files: Content of the folder's files by relative path, with a `model.sdf`.

    Returns:
        The reason why Drake cannot, or None if every collision shape has its hydroelastic mesh.
    """
    from pydrake.geometry import Role
    from pydrake.multibody.parsing import Parser

    plant, scene_graph, builder = empty_plant()
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(content)
        try:
            Parser(plant).AddModels(Path(folder) / "model.sdf")
            plant.Finalize()
            context = scene_graph.GetMyContextFromRoot(builder.Build().CreateDefaultContext())
        except RuntimeError as error:
            return str(error)
    inspector = scene_graph.get_query_output_port().Eval(context).inspector()
    missing = [
        inspector.GetName(shape)
        for shape in inspector.GetAllGeometryIds(Role.kProximity)
        if inspector.maybe_get_hydroelastic_mesh(shape) is None
    ]
    return f"there is no hydroelastic mesh of {', '.join(missing)}." if missing else None
