"""Making a surface closed and outward: what a downloaded mesh needs before it can be weighed.

A surface bounds a volume if its directed edges cancel. That is asked here, rather than that each
edge has two triangles: meshes that touch themselves along an edge can be weighed, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fleet_tools.errors import ConfigError

from ..solids import Solid

MERGE = 1e-6
"""Vertices closer than this, relative to the longest side, are one."""

SMALL_HOLE = 0.1
"""Width of a hole that is closed whatever its shape, relative to the mesh's longest side."""

FLAT_HOLE = 0.01
"""Unevenness of a hole that is closed whatever its width, relative to its width."""


@dataclass(frozen=True, eq=False)
class Shell:
    """One connected surface; closed if its directed edges cancel. Vertices are all used."""

    solid: Solid
    closed: bool


def clean(vertices: np.ndarray, triangles: np.ndarray) -> tuple[Solid, list[str]]:
    """Drops what is not finite, degenerate or said twice, and merges coincident vertices.

    Raises:
        ConfigError: Nothing is left.
    """
    notes = []

    def keep(mask: np.ndarray, what: str) -> None:
        nonlocal triangles
        if not mask.all():
            notes.append(f"dropped {np.count_nonzero(~mask)} {what}")
            triangles = triangles[mask]
        if not len(triangles):
            raise ConfigError(f"No triangle of the mesh is usable: {'; '.join(notes)}.")

    finite = np.isfinite(vertices).all(axis=1)
    keep(finite[triangles].all(axis=1), "triangles with a NaN or infinite corner")
    used = vertices[np.unique(triangles)]
    size = np.ptp(used, axis=0).max()
    if not 0 < size < np.inf:
        raise ConfigError(f"The mesh has no extent: its longest side is {size:g}.")
    before = len(np.unique(triangles))
    vertices, triangles = _merged(np.where(finite[:, None], vertices, 0.0), triangles, MERGE * size)
    if len(vertices) < before:
        notes.append(f"merged {before - len(vertices)} duplicate vertices")
    corners = vertices[triangles]
    area = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    distinct = (triangles != np.roll(triangles, 1, axis=1)).all(axis=1)
    # A thin triangle holds its neighbours together; only one without any area can go.
    keep(distinct & (area > 1e-12 * longest * size), "degenerate triangles")
    _, first = np.unique(np.sort(triangles, axis=1), axis=0, return_index=True)
    keep(np.isin(np.arange(len(triangles)), first), "triangles that were there twice")
    return _compact(vertices, triangles), notes


def shells(solid: Solid) -> tuple[list[Shell], list[str]]:
    """Parts a surface, makes each part's winding consistent, and closes its small holes.

    Returns:
        The shells, largest first, each with a volume >= 0 if it was turned inside out or open, and
        as it was if it was consistent and closed (a cavity stays one); and notes.
    """
    triangles, labels, turned, twisted = _oriented(solid.triangles)
    notes = []
    if turned:
        notes.append(f"turned {turned} triangles that faced against their neighbours")
    if twisted:
        notes.append(f"{twisted} part(s) have no inside, like a Möbius strip")
    found, dust, filled = [], 0, 0
    size = np.ptp(solid.vertices, axis=0).max()
    for label in range(labels.max() + 1):
        part = triangles[labels == label]
        if len(part) < 4 and not _closed(part):
            dust += len(part)
            continue
        vertices, part, holes = _filled(solid.vertices, part, size)
        filled += holes
        found.append(Shell(_compact(vertices, part), _closed(part)))
    if dust:
        notes.append(f"dropped {dust} loose triangles")
    if filled:
        notes.append(f"closed {filled} hole(s)")
    return sorted(found, key=lambda shell: -len(shell.solid.triangles)), notes


def _merged(
    vertices: np.ndarray, triangles: np.ndarray, distance: float
) -> tuple[np.ndarray, np.ndarray]:
    cells = np.round(vertices / distance)
    _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")  # first come, first kept
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    solid = _compact(vertices[first[order]], rank[inverse.reshape(-1)][triangles])
    return solid.vertices, solid.triangles


def _compact(vertices: np.ndarray, triangles: np.ndarray) -> Solid:
    used, inverse = np.unique(triangles, return_inverse=True)
    return Solid(vertices[used], inverse.reshape(-1, 3))


def _oriented(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Turns triangles until neighbours agree.

    Each triangle stands twice in a graph, as it is and turned over; those that agree across an edge
    are joined. A connected part then appears twice, in either orientation; or once, if it is
    one-sided. Of the two the one is taken that turns fewer triangles.

    Returns:
        Triangles (m, 3), the label of each one's part (m,), and how many triangles were turned and
        parts have no inside.
    """
    count = len(triangles)
    edges, owner = _edges(triangles)
    order = np.lexsort(np.sort(edges, axis=1).T)
    edges, owner = edges[order], owner[order]
    key = np.sort(edges, axis=1)
    starts = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]).any(axis=1)])
    runs = np.diff(np.r_[starts, len(key)])
    pair = starts[runs == 2]
    one, other = owner[pair], owner[pair + 1]
    same = (edges[pair] == edges[pair + 1]).all(axis=1)  # both run the same way: they disagree
    rows = np.r_[one, one + count]
    columns = np.r_[other + count * same, other + count * ~same]
    graph = coo_array((np.ones(len(rows), bool), (rows, columns)), (2 * count, 2 * count))
    _, sheet = connected_components(graph, directed=False)
    as_is, turned_over = sheet[:count], sheet[count:]
    part = np.minimum(as_is, turned_over)
    as_they_are = np.bincount(part, as_is == part), np.bincount(part)
    majority = 2 * as_they_are[0] >= as_they_are[1]
    one_sided = as_is == turned_over
    turn = ~one_sided & ((as_is == part) != majority[part])
    oriented = np.where(turn[:, None], triangles[:, ::-1], triangles)
    # Parts are numbered by their first triangle, so that their order is that of the file.
    names, first, labels = np.unique(part, return_index=True, return_inverse=True)
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(first)] = np.arange(len(names))
    twisted = len(np.unique(part[one_sided]))
    return oriented, rank[labels], np.count_nonzero(turn), twisted


def _edges(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directed edges (3m, 2), and the triangle of each."""
    edges = np.concatenate([triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    return edges, np.tile(np.arange(len(triangles)), 3)


def _boundary(triangles: np.ndarray) -> list[tuple[int, int]]:
    """Directed edges that no other cancels."""
    edges, _ = _edges(triangles)
    ordered, sign = np.sort(edges, axis=1), np.where(edges[:, 0] < edges[:, 1], 1, -1)
    unique, inverse = np.unique(ordered, axis=0, return_inverse=True)
    excess = np.bincount(inverse.reshape(-1), sign).astype(int)
    open_edges = []
    for (a, b), n in zip(unique[excess != 0].tolist(), excess[excess != 0].tolist(), strict=True):
        open_edges += [(a, b)] * n if n > 0 else [(b, a)] * -n
    return open_edges


def _closed(triangles: np.ndarray) -> bool:
    return not _boundary(triangles)


def _filled(
    vertices: np.ndarray, triangles: np.ndarray, size: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Closes small or flat holes by a fan about their middle."""
    filled = 0
    for loop in _loops(_boundary(triangles)):
        rim = vertices[loop]
        middle = rim.mean(axis=0)
        width = np.ptp(rim, axis=0).max()
        unevenness = np.linalg.svd(rim - middle, compute_uv=False)[-1] / np.sqrt(len(rim))
        if width > SMALL_HOLE * size and unevenness > FLAT_HOLE * width:
            continue
        filled += 1
        ahead = np.roll(loop, -1)
        if len(loop) == 3:
            fan = [(loop[2], loop[1], loop[0])]
        else:
            fan = np.column_stack([ahead, loop, np.full(len(loop), len(vertices))])
            vertices = np.vstack([vertices, middle])
        triangles = np.vstack([triangles, fan])
    return vertices, triangles, filled


def _loops(edges: list[tuple[int, int]]) -> list[list[int]]:
    """Parts directed edges into closed walks that visit no vertex twice."""
    ahead: dict[int, list[int]] = {}
    for a, b in sorted(edges, reverse=True):
        ahead.setdefault(a, []).append(b)
    loops = []
    for start in sorted(ahead):
        while ahead[start]:
            walk, at = [start], {start: 0}
            while ahead.get(walk[-1]):
                vertex = ahead[walk[-1]].pop()
                if vertex in at:
                    loop = walk[at[vertex] :]
                    del walk[at[vertex] + 1 :]
                    at = {v: k for k, v in enumerate(walk)}
                    if len(loop) > 2:
                        loops.append(loop)
                else:
                    at[vertex] = len(walk)
                    walk.append(vertex)
    return loops
