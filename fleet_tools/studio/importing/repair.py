"""Repair of surfaces: consistent winding and closed holes, without which a mesh has no volume.

A surface bounds a volume if its directed edges cancel. This is checked rather than that each edge
has two triangles, because meshes that touch themselves along an edge have a volume, too.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fleet_tools.assets.solids import Solid, triangle_areas, without_unused_vertices
from fleet_tools.errors import ConfigError

MERGE_DISTANCE = 1e-6
"""Distance within which vertices are merged, relative to the longest side."""

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

    Returns:
        The surface, and notes on the changes.

    Raises:
        ConfigError: No triangle is left, or the mesh has no extent.
    """
    notes: list[str] = []

    def keep(mask: np.ndarray, dropped: str) -> None:
        nonlocal triangles
        if not mask.all():
            notes.append(f"dropped {np.count_nonzero(~mask)} {dropped}")
            triangles = triangles[mask]
        if not len(triangles):
            raise ConfigError(
                f"No triangle of the mesh is usable: {'; '.join(notes)}. Export it again."
            )

    finite = np.asarray(np.isfinite(vertices).all(axis=1))
    keep(np.asarray(finite[triangles].all(axis=1)), "triangles with a NaN or infinite corner")
    size = np.ptp(vertices[np.unique(triangles)], axis=0).max()
    if not 0 < size < np.inf:
        raise ConfigError(f"The mesh has no extent: its longest side is {size:g}. Export it again.")
    before = len(np.unique(triangles))
    vertices, triangles = _merged(
        np.where(finite[:, None], vertices, 0.0), triangles, MERGE_DISTANCE * size
    )
    if len(vertices) < before:
        notes.append(f"merged {before - len(vertices)} duplicate vertices")
    corners = vertices[triangles]
    area = np.linalg.norm(triangle_areas(corners), axis=1)
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    distinct = (triangles != np.roll(triangles, 1, axis=1)).all(axis=1)
    # A thin triangle connects its neighbours; only one without any area can be dropped.
    keep(distinct & (area > 1e-12 * longest * size), "degenerate triangles")
    _, first = np.unique(np.sort(triangles, axis=1), axis=0, return_index=True)
    keep(np.isin(np.arange(len(triangles)), first), "triangles that were there twice")
    return without_unused_vertices(vertices, triangles), notes


def repaired_shells(solid: Solid) -> tuple[list[Shell], list[str]]:
    """Separates connected surfaces, makes the winding of each consistent, and closes small holes.

    Args:
        solid: Any surface, cleaned.

    Returns:
        The shells in decreasing order of triangles, and notes on the changes. A shell that was
        consistent and closed keeps its orientation, so that a cavity stays one.
    """
    winding = _with_consistent_winding(solid.triangles)
    notes = []
    if winding.turned:
        notes.append(f"turned {winding.turned} triangles that faced against their neighbours")
    if winding.one_sided:
        notes.append(f"{winding.one_sided} part(s) have no inside, like a Möbius strip")
    found, loose, closed_holes = [], 0, 0
    size = np.ptp(solid.vertices, axis=0).max()
    for label in range(winding.labels.max() + 1):
        part = winding.triangles[winding.labels == label]
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


def _merged(
    vertices: np.ndarray, triangles: np.ndarray, distance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Merges vertices in the same cell of a grid into the first of them."""
    cells = np.round(vertices / distance)
    _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    solid = without_unused_vertices(vertices[first[order]], rank[inverse.reshape(-1)][triangles])
    return solid.vertices, solid.triangles


@dataclass(frozen=True)
class _Winding:
    """Triangles whose winding agrees with that of their neighbours.

    Attributes:
        triangles: Vertex indices, (m, 3).
        labels: Index of the connected part of each triangle, (m,).
        turned: Number of triangles that were turned.
        one_sided: Number of parts that have no inside.
    """

    triangles: np.ndarray
    labels: np.ndarray
    turned: int
    one_sided: int


def _with_consistent_winding(triangles: np.ndarray) -> _Winding:
    """Turns triangles until neighbours agree.

    Each triangle stands twice in a graph, as it is and turned over; those that agree across an edge
    are connected. A connected part then appears twice, in either orientation, or once if it is
    one-sided. Of the two, the one that turns fewer triangles is taken.
    """
    count = len(triangles)
    edges, owner = _directed_edges(triangles)
    order = np.lexsort(np.sort(edges, axis=1).T)
    edges, owner = edges[order], owner[order]
    key = np.sort(edges, axis=1)
    starts = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]).any(axis=1)])
    runs = np.diff(np.r_[starts, len(key)])
    pair = starts[runs == 2]
    one, other = owner[pair], owner[pair + 1]
    disagree = (edges[pair] == edges[pair + 1]).all(axis=1)  # both run in the same direction
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
    return _Winding(
        oriented,
        rank[labels],
        turned=int(np.count_nonzero(turn)),
        one_sided=len(np.unique(part[one_sided])),
    )


def _directed_edges(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns directed edges as vertex indices, (3m, 2), and the triangle of each, (3m,)."""
    edges = np.concatenate([triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    return edges, np.tile(np.arange(len(triangles)), 3)


def _open_edges(triangles: np.ndarray) -> list[tuple[int, int]]:
    """Returns the directed edges that no other one cancels."""
    edges, _ = _directed_edges(triangles)
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
    """Closes small or flat holes by a fan around their middle.

    Args:
        vertices: Positions, (n, 3).
        triangles: Vertex indices, (m, 3).
        size: Longest side of the mesh.

    Returns:
        Vertices, triangles, and the number of holes that were closed.
    """
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
