"""Repairs meshes, so that they enclose a volume, and simplifies them.

A surface bounds a volume if its directed edges cancel. This is checked rather than that each edge
has two triangles, because meshes that touch themselves along an edge have a volume, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import trimesh
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from trimesh.geometry import faces_to_edges
from trimesh.graph import face_adjacency
from trimesh.grouping import unique_rows

from fleet_tools.assets.solids import Solid, area_vectors, without_unused_vertices
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.apart import CLEAN, call_apart
from fleet_tools.utils.libraries import require

MERGE_DISTANCE = 1e-6
"""Distance within which vertices are merged, relative to the longest side."""

DEGENERATE = 1e-12
"""Height of a triangle that has no area, relative to the longest side."""

SMALL_HOLE = 0.1
"""Width of a hole that is closed whatever its shape, relative to the mesh's longest side."""

FLAT_HOLE = 0.01
"""Unevenness of a hole that is closed whatever its width, relative to its width."""


@dataclass(frozen=True, eq=False)
class Shell:
    """One connected surface, all of whose vertices are used.

    Attributes:
        solid: The surface.
        closed: Whether its directed edges cancel.
    """

    solid: Solid
    closed: bool


def cleaned(vertices: np.ndarray, triangles: np.ndarray) -> tuple[Solid, list[str]]:
    """Merges coincident vertices, and drops triangles that are not finite, degenerate or repeated.

    Args:
        vertices: Positions, (n, 3).
        triangles: Vertex indices, (m, 3).

    Raises:
        ConfigError: No triangle is left, or the mesh has no extent.
    """
    notes: list[str] = []
    mesh = trimesh.Trimesh(vertices, triangles, process=False, validate=False)

    def keep(mask: np.ndarray, dropped: str) -> None:
        if not mask.all():
            notes.append(f"dropped {np.count_nonzero(~mask)} {dropped}")
            mesh.update_faces(mask)
        if not len(mesh.faces):
            raise ConfigError(
                f"No triangle of the mesh is usable: {'; '.join(notes)}. Export it again."
            )

    keep(np.isfinite(mesh.triangles).all(axis=(1, 2)), "triangles with a NaN or infinite corner")
    mesh.remove_unreferenced_vertices()
    size = np.ptp(mesh.vertices, axis=0).max()
    if not 0 < size < np.inf:
        raise ConfigError(f"The mesh has no extent: its longest side is {size:g}. Export it again.")
    before = len(mesh.vertices)
    first, inverse = unique_rows(mesh.vertices / (MERGE_DISTANCE * size), digits=0, keep_order=True)
    mesh.update_vertices(first, inverse)
    if len(mesh.vertices) < before:
        notes.append(f"merged {before - len(mesh.vertices)} duplicate vertices")
    # A thin triangle connects its neighbours; only one without any area can be dropped.
    keep(mesh.nondegenerate_faces(height=DEGENERATE * size), "degenerate triangles")
    keep(mesh.unique_faces(), "triangles that were there twice")
    mesh.remove_unreferenced_vertices()
    return Solid(np.array(mesh.vertices), np.array(mesh.faces)), notes


def repaired_shells(solid: Solid) -> tuple[list[Shell], list[str]]:
    """Separates connected surfaces, makes the winding of each consistent, and closes small holes.

    The shells are in decreasing order of triangles. A shell that was consistent and closed keeps
    its orientation, so that a cavity stays one.
    """
    triangles, labels, notes = _with_consistent_winding(solid.triangles)
    found, loose, closed_holes = [], 0, 0
    size = np.ptp(solid.vertices, axis=0).max()
    for label in range(labels.max() + 1):
        part = triangles[labels == label]
        if len(part) < 4 and not _is_closed(part):
            loose += len(part)
            continue
        vertices, part, holes = _with_closed_holes(solid.vertices, part, size)
        closed_holes += holes
        found.append(Shell(without_unused_vertices(vertices, part), _is_closed(part)))
    if loose:
        notes.append(f"dropped {loose} loose triangles")
    if closed_holes:
        notes.append(f"closed {closed_holes} hole(s)")
    return sorted(found, key=lambda shell: -len(shell.solid.triangles)), notes


def _with_consistent_winding(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Turns triangles (m, 3) until neighbours agree.

    Returns them, the index of the connected part of each, (m,), and notes.

    Each triangle stands twice in a graph, as it is and turned over; those that agree across an edge
    are connected. A connected part then appears twice, in either orientation, or once if it is
    one-sided. Of the two, the one that turns fewer triangles is taken.
    """
    count = len(triangles)
    pairs, edges = map(np.asarray, face_adjacency(triangles, return_edges=True))
    one, other = pairs.T

    def along(faces: np.ndarray) -> np.ndarray:
        ahead = (faces == edges[:, :1]) & (np.roll(faces, -1, axis=1) == edges[:, 1:])
        return ahead.any(axis=1)

    disagree = along(triangles[one]) == along(triangles[other])  # both in the same direction
    rows = np.r_[one, one + count]
    columns = np.r_[other + count * disagree, other + count * ~disagree]
    graph = coo_array((np.ones(len(rows), bool), (rows, columns)), (2 * count, 2 * count))
    _, component = connected_components(graph, directed=False)
    as_is, turned_over = component[:count], component[count:]
    part = np.minimum(as_is, turned_over)
    agreeing, total = np.bincount(part, as_is == part), np.bincount(part)
    majority = 2 * agreeing >= total
    one_sided = as_is == turned_over
    turn = ~one_sided & ((as_is == part) != majority[part])
    oriented = np.where(turn[:, None], triangles[:, ::-1], triangles)
    # Parts are numbered by their first triangle, so that their order is that of the file.
    names, first, labels = np.unique(part, return_index=True, return_inverse=True)
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(first)] = np.arange(len(names))
    notes = []
    if turned := np.count_nonzero(turn):
        notes.append(f"turned {turned} triangles that faced against their neighbours")
    if strips := len(np.unique(part[one_sided])):
        notes.append(f"{strips} part(s) have no inside, like a Möbius strip")
    return oriented, rank[labels], notes


def _open_edges(triangles: np.ndarray) -> list[tuple[int, int]]:
    """Returns the directed edges that no other one cancels."""
    edges = np.asarray(faces_to_edges(triangles))
    ordered, sign = np.sort(edges, axis=1), np.where(edges[:, 0] < edges[:, 1], 1, -1)
    unique, inverse = np.unique(ordered, axis=0, return_inverse=True)
    excess = np.bincount(inverse.reshape(-1), sign).astype(int)
    open_edges = []
    for (a, b), n in zip(unique[excess != 0].tolist(), excess[excess != 0].tolist(), strict=True):
        open_edges += [(a, b)] * n if n > 0 else [(b, a)] * -n
    return open_edges


def _is_closed(triangles: np.ndarray) -> bool:
    return not _open_edges(triangles)


def _with_closed_holes(
    vertices: np.ndarray, triangles: np.ndarray, size: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Closes small or flat holes by a fan around their middle, and counts them."""
    count = 0
    for loop in _loops(_open_edges(triangles)):
        rim = vertices[loop]
        middle = rim.mean(axis=0)
        width = np.ptp(rim, axis=0).max()
        unevenness = np.linalg.svd(rim - middle, compute_uv=False)[-1] / np.sqrt(len(rim))
        if width > SMALL_HOLE * size and unevenness > FLAT_HOLE * width:
            continue
        count += 1
        following = np.roll(loop, -1)
        if len(loop) == 3:
            fan = [(loop[2], loop[1], loop[0])]
        else:
            fan = np.column_stack([following, loop, np.full(len(loop), len(vertices))])
            vertices = np.vstack([vertices, middle])
        triangles = np.vstack([triangles, fan])
    return vertices, triangles, count


def _loops(edges: list[tuple[int, int]]) -> list[list[int]]:
    """Separates directed edges into closed walks that visit no vertex twice."""
    successors: dict[int, list[int]] = {}
    for a, b in sorted(edges, reverse=True):
        successors.setdefault(a, []).append(b)
    loops = []
    for start in sorted(successors):
        while successors[start]:
            walk, index = [start], {start: 0}
            while successors.get(walk[-1]):
                vertex = successors[walk[-1]].pop()
                if vertex in index:
                    loop = walk[index[vertex] :]
                    del walk[index[vertex] + 1 :]
                    index = {v: k for k, v in enumerate(walk)}
                    if len(loop) > 2:
                        loops.append(loop)
                else:
                    index[vertex] = len(walk)
                    walk.append(vertex)
    return loops


DEVIATIONS = (1e-4, 5e-4, 2e-3)
"""Deviations that are tried on a closed surface, relative to its size, in increasing order."""


def simplified(solid: Solid, max_triangles: int) -> Solid:
    """Returns a surface with at most `max_triangles`, 100 or more; itself if it has no more.

    First nearly flat regions are simplified, which keeps a closed surface closed, then edges are
    collapsed by quadric errors, and if that fails, as it does among slivers, vertices are merged on
    a grid. After the latter two the surface serves as visual geometry, not for mass properties.

    Raises:
        MissingLibraryError: It has more triangles, and a library is absent.
        NativeLibraryError: The library failed.
    """
    if len(solid.triangles) <= max_triangles:
        return solid
    require("manifold3d", f"simplify {len(solid.triangles)} triangles")
    return call_apart("manifold3d or fast-simplification", CLEAN, _simplified, solid, max_triangles)


def _simplified(solid: Solid, max_triangles: int) -> Solid:
    flattened = _flattened(solid, max_triangles)
    if len(flattened.triangles) <= max_triangles:
        return without_degenerate_triangles(flattened)
    library = require("fast_simplification", f"simplify {len(solid.triangles)} triangles")
    vertices, triangles = library.simplify(
        np.ascontiguousarray(flattened.vertices, np.float64),
        np.ascontiguousarray(flattened.triangles, np.int32),
        target_count=max_triangles * 9 // 10,
    )
    result = without_degenerate_triangles(
        Solid(np.asarray(vertices, float), np.asarray(triangles, np.int64))
    )
    cells = 256
    while len(result.triangles) > max_triangles:
        result, cells = _merged_on_grid(result, cells), cells * 3 // 4
    return result


def without_degenerate_triangles(solid: Solid) -> Solid:
    """Returns the solid without triangles that have no area once their corners are rounded."""
    vertices = np.round(solid.vertices, 9)
    areas = area_vectors(vertices[solid.triangles])
    kept = solid.triangles[np.linalg.norm(areas, axis=1) > 1e-14]
    return without_unused_vertices(vertices, kept)


def _flattened(solid: Solid, max_triangles: int) -> Solid:
    """Simplifies nearly flat regions of a closed surface; returns others as they are."""
    manifold = as_manifold(solid)
    if manifold is None:
        return solid  # not closed: quadric errors alone decide
    size = np.ptp(solid.vertices, axis=0).max()
    result = manifold
    for deviation in DEVIATIONS:
        result = manifold.simplify(deviation * size)
        if result.num_tri() <= max_triangles:
            break
    return from_manifold(result) if result.num_tri() else solid


SLIVER = 1e-5
"""Length of an edge that is collapsed before a decomposition, relative to the size."""


def without_slivers(solid: Solid) -> Solid:
    """Collapses tiny edges of a closed surface, which a cut beside a vertex leaves.

    CoACD takes them, and slivers in the same plane, for self-intersections: it aborts, or replaces
    the surface by voxels of many more triangles.
    """
    least = SLIVER * np.ptp(solid.vertices, axis=0).max()
    edges = np.asarray(faces_to_edges(solid.triangles))
    lengths = np.linalg.norm(np.subtract(*solid.vertices[edges.T]), axis=1)
    short = edges[lengths < least]
    if not len(short):
        return solid
    count = len(solid.vertices)
    graph = coo_array((np.ones(len(short), bool), tuple(short.T)), (count, count))
    _, label = connected_components(graph, directed=False)
    _, first = np.unique(label, return_index=True)
    triangles = first[label][solid.triangles]
    distinct = (triangles != np.roll(triangles, 1, axis=1)).all(axis=1)
    collapsed = without_unused_vertices(solid.vertices, triangles[distinct])
    manifold = as_manifold(collapsed)
    if manifold is None:
        return collapsed
    flattened = manifold.simplify(least)
    return from_manifold(flattened) if flattened.num_tri() else collapsed


def as_manifold(solid: Solid) -> Any:
    """Returns a surface as manifold3d's; None if it is not closed or touches itself."""
    import manifold3d

    manifold = manifold3d.Manifold(
        manifold3d.Mesh64(
            np.ascontiguousarray(solid.vertices, np.float64),
            np.ascontiguousarray(solid.triangles, np.uint64),
        )
    )
    return manifold if manifold.status() == manifold3d.Error.NoError else None


def from_manifold(manifold: Any) -> Solid:
    """Returns a surface of manifold3d as a solid."""
    mesh = manifold.to_mesh64()
    return Solid(np.array(mesh.vert_properties)[:, :3], np.array(mesh.tri_verts, np.int64))


def _merged_on_grid(solid: Solid, cells: int) -> Solid:
    """Merges the vertices in each cell of a grid with so many cells along the longest side."""
    low = solid.vertices.min(axis=0)
    step = np.ptp(solid.vertices, axis=0).max() / cells
    _, first, inverse = np.unique(
        np.round((solid.vertices - low) / step), axis=0, return_index=True, return_inverse=True
    )
    merged = Solid(solid.vertices[first], inverse.reshape(-1)[solid.triangles])
    _, kept = np.unique(np.sort(merged.triangles, axis=1), axis=0, return_index=True)
    return without_degenerate_triangles(Solid(merged.vertices, merged.triangles[np.sort(kept)]))
