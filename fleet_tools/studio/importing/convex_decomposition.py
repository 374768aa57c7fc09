"""Convex decomposition of solids; contact is fast and robust with convex geometry only."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fleet_tools.assets.solids import Solid, area_vectors
from fleet_tools.errors import NativeLibraryError
from fleet_tools.parallel.apart import CLEAN, call_apart
from fleet_tools.studio.importing.enclosed_body import convex_hull, volume
from fleet_tools.studio.importing.repair import (
    as_manifold,
    from_manifold,
    simplified,
    without_slivers,
)
from fleet_tools.utils.libraries import require

REACH = 0.015
"""Distance beyond the nearest point of the mesh at which a point is no longer near a keypoint, m;
near the middle of a jaw are its pads."""

CONVEX = 0.97
"""Least volume of a solid that is taken for convex, as a fraction of the volume of its hull."""

MAX_TRIANGLES = 2000
"""Number of triangles to which a solid is simplified first; more take minutes to no effect."""

RESOLUTION = 25
"""Number of voxels along the longest side when CoACD remeshes a surface that is not a manifold:
half of its default, and many times faster on shells of twenty thousand triangles."""

SEARCH_ITERATIONS = 60
"""Iterations of CoACD's tree search for each cut."""

LEAST_VOLUME = 1e-3
"""Least volume of a piece, as a fraction of the hull's."""


class Decomposition:
    """Decomposes solids into approximately convex pieces; each part by CoACD once.

    A solid that is not convex is cut along planes of its faces, and what is not convex then is
    decomposed by CoACD. A part for which a library fails is represented by its convex hull.

    Args:
        solids: Closed surfaces that face outward.
        concavity: Distance by which the hull of a piece may exceed it, relative to the size of the
            solid (CoACD's threshold).
        most: Largest number of pieces that will be asked for.
        keypoints: Positions, (k, 3), m, near which pieces are to fit best.

    Attributes:
        failures: Errors of libraries.
    """

    def __init__(
        self, solids: Sequence[Solid], concavity: float, most: int, keypoints: np.ndarray
    ) -> None:
        self._solids = sorted(solids, key=_void, reverse=True)
        self._limits, self._keypoints = (concavity, most), keypoints
        self._coarse: dict[int, Solid] = {}
        self._found: dict[bytes, list[np.ndarray]] = {}
        self.failures: list[str] = []

    def pieces(self, max_pieces: int) -> list[np.ndarray]:
        """Returns points, (n_k, 3) each, whose hulls together cover the solids.

        Args:
            max_pieces: Largest number of pieces; each solid has one at least, its convex hull.

        Raises:
            MissingLibraryError: A solid is not convex, and a library is absent.
        """
        spare = max_pieces - len(self._solids)
        parts: list[Solid] = []
        for k, solid in enumerate(self._solids):
            cut = [solid]
            if spare > 0 and not _is_convex(solid):
                require("manifold3d", "decompose a mesh that is not convex")
                with self._kept():
                    if k not in self._coarse:
                        self._coarse[k] = simplified(solid, MAX_TRIANGLES)
                    arguments = self._coarse[k], 1 + spare, self._keypoints, REACH
                    cut = call_apart("manifold3d", CLEAN, face_cut_parts, *arguments)
            spare -= len(cut) - 1
            parts += cut
        pieces: list[np.ndarray] = []
        for part in sorted(parts, key=_void, reverse=True):
            found = [part.vertices]
            if spare > 0 and not _is_convex(part):
                found = merged(self._by_coacd(part), 1 + spare)
                spare -= len(found) - 1
            pieces += found
        return pieces

    def _by_coacd(self, part: Solid) -> list[np.ndarray]:
        key = part.vertices.tobytes()
        if key not in self._found:
            self._found[key] = [part.vertices]
            otherwise = "Or take its convex hull for contact: --pieces 1."
            require("coacd", "decompose a mesh that is not convex", otherwise)
            with self._kept():
                coarse = simplified(part, MAX_TRIANGLES)
                self._found[key] = call_apart("CoACD", CLEAN, _coacd, coarse, *self._limits)
        return self._found[key]

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Keeps what is there if a library fails."""
        try:
            yield
        except NativeLibraryError as error:
            self.failures.append(str(error))


def _void(solid: Solid) -> float:
    """Returns the volume by which the hull exceeds a solid, m^3."""
    hull = convex_hull(solid.vertices)
    return 0.0 if hull is None else volume(hull) - volume(solid)


def _is_convex(solid: Solid) -> bool:
    hull = convex_hull(solid.vertices)
    return hull is None or volume(solid) >= CONVEX * volume(hull)


def _coacd(solid: Solid, concavity: float, max_pieces: int) -> list[np.ndarray]:
    """Decomposes a solid by cuts that a tree search finds.

    Source: Wei et al., "Approximate Convex Decomposition for 3D Meshes with Collision-Aware
    Concavity and Tree Search", SIGGRAPH 2022.
    """
    import coacd

    coacd.set_log_level("error")
    coarse = without_slivers(solid)
    pieces = coacd.run_coacd(
        coacd.Mesh(coarse.vertices, coarse.triangles),
        threshold=concavity,
        max_convex_hull=max_pieces,
        preprocess_resolution=RESOLUTION,
        mcts_iterations=SEARCH_ITERATIONS,
        seed=0,
    )
    whole = convex_hull(solid.vertices)
    hulls = [convex_hull(np.asarray(points)) for points, _ in pieces]
    least = LEAST_VOLUME * (0.0 if whole is None else volume(whole))
    solids = [hull for hull in hulls if hull is not None and volume(hull) > least]
    return [h.vertices for h in sorted(solids, key=volume, reverse=True)] or [solid.vertices]


def merged(pieces: list[np.ndarray], max_pieces: int) -> list[np.ndarray]:
    """Merges the pieces whose common hull encloses the least volume beside them, one by one.

    Args:
        pieces: Points, (n_k, 3) each.
        max_pieces: Largest number of pieces that are left.

    Returns:
        Points, (n_k, 3) each, in decreasing order of the volume of their hulls.
    """

    def joint(one: Solid, other: Solid) -> tuple[float, Solid]:
        hull = convex_hull(np.concatenate([one.vertices, other.vertices]))
        assert hull is not None  # each of them has a volume
        return volume(hull) - volume(one) - volume(other), hull

    left = dict(enumerate(filter(None, map(convex_hull, pieces))))
    if len(left) <= max_pieces:
        return pieces
    pairs = {pair: joint(left[pair[0]], left[pair[1]]) for pair in itertools.combinations(left, 2)}
    while len(left) > max_pieces:
        a, b = min(pairs, key=lambda pair: pairs[pair][0])
        _, hull = pairs[a, b]
        del left[a], left[b]
        pairs = {pair: found for pair, found in pairs.items() if not {a, b} & {*pair}}
        new = max(left, default=0) + len(pieces)
        pairs |= {(k, new): joint(each, hull) for k, each in left.items()}
        left[new] = hull
    return [hull.vertices for hull in sorted(left.values(), key=volume, reverse=True)]


SAME_PLANE = (np.cos(np.radians(4.0)), 0.003)
"""Cosine of the largest angle, and largest distance relative to the size, of triangles of one
face."""

MAX_PLANES = 40
"""Number of planes that are tried for each cut: the largest faces'."""

LEAST_GAIN = 0.25
"""Least fraction of a part's void that a cut must remove."""

NEARLY_CONVEX = 0.03
"""Void of a part that is taken for convex, as a fraction of its hull's volume."""

WEIGHT = 10.0
"""Weight of void near a keypoint, relative to void elsewhere."""


def face_cut_parts(
    solid: Solid, max_parts: int, keypoints: np.ndarray, reach: float
) -> list[Solid]:
    """Divides a solid along planes of its faces until its parts are nearly convex.

    In each step the part whose hull encloses the largest void is cut along the plane that removes
    most of it.

    Args:
        solid: Closed surface that faces outward.
        max_parts: Largest number of parts.
        keypoints: Positions, (k, 3), near which void counts more.
        reach: Half the side of the cubes around them, m.

    Returns:
        Parts, which together are the solid; the solid itself if it cannot be divided.
    """
    from manifold3d import Manifold, OpType

    whole = as_manifold(solid)
    if whole is None:
        return [solid]
    side = 2 * reach
    cubes = [Manifold.cube((side, side, side), True).translate(tuple(p)) for p in keypoints]
    near = Manifold.batch_boolean(cubes, OpType.Add) if cubes else None

    def void(part: Any) -> float:
        hull = part.hull()
        weighted = 0.0 if near is None else (hull ^ near).volume() - (part ^ near).volume()
        return hull.volume() - part.volume() + WEIGHT * weighted

    parts = [(void(part), part) for part in whole.decompose()]
    finished: list[Any] = []
    while parts and len(parts) + len(finished) < max_parts:
        parts.sort(key=lambda pair: -pair[0])
        largest, part = parts.pop(0)
        best = None
        if largest > NEARLY_CONVEX * part.hull().volume():
            cuts = [_cut(part, plane) for plane in _planes(from_manifold(part))]
            rated = [[(void(piece), piece) for piece in cut] for cut in cuts if len(cut) > 1]
            room = max_parts - len(parts) - len(finished)
            rated = [cut for cut in rated if len(cut) <= room]
            best = min(rated, key=lambda cut: sum(v for v, _ in cut), default=None)
        if best is None or sum(v for v, _ in best) > (1 - LEAST_GAIN) * largest:
            finished.append(part)
        else:
            parts += best
    return [from_manifold(part) for part in [*finished, *(part for _, part in parts)]]


def _planes(solid: Solid) -> Iterable[tuple[np.ndarray, float]]:
    """Yields unit normals and offsets of the planes of the largest faces."""
    corners = solid.vertices[solid.triangles]
    vectors = area_vectors(corners)
    areas = np.linalg.norm(vectors, axis=1)
    normals = vectors / np.maximum(areas, 1e-30)[:, None]
    middles = corners.mean(axis=1)
    cosine, distance = SAME_PLANE
    distance *= np.ptp(solid.vertices, axis=0).max()
    free = areas > 0
    found = []
    for k in np.argsort(-areas):
        if not free[k]:
            continue
        heights = (middles - middles[k]) @ normals[k]
        # Faces that look the other way have the same plane, too.
        same = free & (np.abs(normals @ normals[k]) > cosine) & (np.abs(heights) < distance)
        free &= ~same
        signs = np.sign(normals[same] @ normals[k])
        normal = (signs[:, None] * vectors[same]).sum(axis=0)
        normal /= np.linalg.norm(normal)
        offset = float(np.average(middles[same] @ normal, weights=areas[same]))
        found.append((areas[same].sum(), normal, offset))
    found.sort(key=lambda face: -face[0])
    return [(normal, offset) for _, normal, offset in found[:MAX_PLANES]]


def _cut(part: Any, plane: tuple[np.ndarray, float]) -> list[Any]:
    """Returns the connected pieces on both sides of a plane, without crumbs."""
    normal, offset = plane
    halves = part.split_by_plane(tuple(normal), offset)
    pieces = [piece for half in halves for piece in half.decompose()]
    return [piece for piece in pieces if piece.volume() > 1e-4 * part.volume()]
