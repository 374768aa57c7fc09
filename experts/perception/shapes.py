"""Shapes of models: surfaces of links, the poses that these can have, and labelled points.

A shape has pieces that move independently of each other: the one that is fixed to the world or to
the hand, or each of the bodies that lie free on the table. The pose of a piece is the pose of
the model's frame if the whole model had moved with it, so that all pieces begin with the same.

Links can be scaled, each along the axes of its frame. What a link carries moves with its scale: the
frames of the links that are joined to it, at rest. A joint's own motion is not scaled.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from pydrake.geometry import FrameId, SceneGraph
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph
from pydrake.systems.framework import DiagramBuilder
from scipy.spatial import KDTree

from fleet_tools.config.control import TIME_STEP
from fleet_tools.perception.visible_links import link_triangles
from fleet_tools.sim.add_models import add_model, model_frame
from fleet_tools.sim.catalog import Model
from fleet_tools.utils.compiled import compiled

SAMPLES = 20_000
"""Number of points that stand for a surface where its nearest triangles are looked up."""
NEIGHBOURS = 8
"""Number of nearest samples whose triangles are looked at."""


@dataclass(frozen=True, eq=False)
class TriangleSurface:
    """A rigid surface.

    Attributes:
        triangles: (n, 3, 3), corners in the surface's frame, m; n > 0.
    """

    triangles: np.ndarray

    @cached_property
    def _tree(self) -> tuple[KDTree, np.ndarray]:
        points, triangles = sample(self.triangles, SAMPLES)
        points = np.concatenate([points, self.triangles.mean(axis=1)])  # none is left out
        return KDTree(points), np.concatenate([triangles, np.arange(len(self.triangles))])

    def closest(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the closest points of the surface, and its normals there.

        Args:
            points: (m, 3), in the surface's frame, m.

        Returns:
            (m, 3) each; normals point to where the corners go round counterclockwise.
        """
        tree, triangle_of = self._tree
        _, nearest = tree.query(points, k=NEIGHBOURS)
        closest, normals = np.zeros((len(points), 3)), np.zeros((len(points), 3))
        _set_closest(points, self.triangles, triangle_of[nearest], closest, normals)
        return closest, normals


def sample(triangles: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points that are spread evenly over triangles; the same ones each time.

    Args:
        triangles: (n, 3, 3), corners, m.
        count: Number of points.

    Returns:
        The points (count, 3), m, and the indices of their triangles (count,).
    """
    edges = triangles[:, 1:] - triangles[:, :1]
    areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1)
    shares = np.cumsum(areas) / areas.sum()
    chosen = np.searchsorted(shares, (np.arange(count) + 0.5) / count)
    u, v = np.random.default_rng(0).uniform(size=(2, count, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    return triangles[chosen, 0] + u * edges[chosen, 0] + v * edges[chosen, 1], chosen


# Compiled functions do with numbers what would be shorter with arrays and compile thrice as long.


@compiled
def _set_closest(points, triangles, candidates, closest, normals):
    """Sets the closest points (m, 3) on candidates (m, k) among the triangles, and normals."""
    for i in range(points.shape[0]):
        p = points[i, 0], points[i, 1], points[i, 2]
        best, chosen = np.inf, candidates[i, 0]
        for j in range(candidates.shape[1]):
            if j > 0 and candidates[i, j] == candidates[i, j - 1]:
                continue
            q = _closest_on(triangles, candidates[i, j], p)
            d2 = (q[0] - p[0]) ** 2 + (q[1] - p[1]) ** 2 + (q[2] - p[2]) ** 2
            if d2 < best:
                best, chosen = d2, candidates[i, j]
                closest[i, 0], closest[i, 1], closest[i, 2] = q
        a = _corner(triangles, chosen, 0)
        u = _minus(_corner(triangles, chosen, 1), a)
        v = _minus(_corner(triangles, chosen, 2), a)
        x, y, z = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
        length = max(math.sqrt(x**2 + y**2 + z**2), 1e-30)
        normals[i, 0], normals[i, 1], normals[i, 2] = x / length, y / length, z / length


@compiled
def _closest_on(triangles, k, p):
    """Returns the point of triangle k closest to p, by its Voronoi regions."""
    a, b, c = _corner(triangles, k, 0), _corner(triangles, k, 1), _corner(triangles, k, 2)
    ab, ac, ap = _minus(b, a), _minus(c, a), _minus(p, a)
    d1, d2 = _dot(ab, ap), _dot(ac, ap)
    if d1 <= 0 and d2 <= 0:
        return a
    bp = _minus(p, b)
    d3, d4 = _dot(ab, bp), _dot(ac, bp)
    if d3 >= 0 and d4 <= d3:
        return b
    cp = _minus(p, c)
    d5, d6 = _dot(ab, cp), _dot(ac, cp)
    if d6 >= 0 and d5 <= d6:
        return c
    vc, vb, va = d1 * d4 - d3 * d2, d5 * d2 - d1 * d6, d3 * d6 - d5 * d4
    if vc <= 0 and d1 >= 0 and d3 <= 0:
        return _plus(a, ab, d1 / (d1 - d3))
    if vb <= 0 and d2 >= 0 and d6 <= 0:
        return _plus(a, ac, d2 / (d2 - d6))
    if va <= 0 and d4 - d3 >= 0 and d5 - d6 >= 0:
        return _plus(b, _minus(c, b), (d4 - d3) / ((d4 - d3) + (d5 - d6)))
    whole = va + vb + vc
    return (
        a[0] + (ab[0] * vb + ac[0] * vc) / whole,
        a[1] + (ab[1] * vb + ac[1] * vc) / whole,
        a[2] + (ab[2] * vb + ac[2] * vc) / whole,
    )


@compiled
def _corner(triangles, k, i):
    return triangles[k, i, 0], triangles[k, i, 1], triangles[k, i, 2]


@compiled
def _minus(u, v):
    return u[0] - v[0], u[1] - v[1], u[2] - v[2]


@compiled
def _plus(u, v, factor):
    return u[0] + v[0] * factor, u[1] + v[1] * factor, u[2] + v[2] * factor


@compiled
def _dot(u, v):
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]


class Shape:
    """The shape of a model.

    Args:
        model: The model.
        fixed: Whether its frame is fixed, to the world or to the hand.

    Attributes:
        surfaces: Surfaces of the visible links, each in its frame L.
        pieces: Number of pieces.
        main: The piece to which the model's frame belongs.
        rest: (joints,), positions in which the model begins, m or rad.
        low, high: (joints,), limits of the positions.
        scales: (links, 3), of the visible links; None if they are as the model says.

    Raises:
        ConfigError: Drake cannot read the model.
    """

    def __init__(self, model: Model, fixed: bool) -> None:
        self._made_of = model, fixed
        builder = DiagramBuilder()
        plant, scene_graph = AddMultibodyPlantSceneGraph(builder, TIME_STEP)
        instance = add_model(plant, scene_graph, model, model.labels.kind)
        frame = model_frame(plant, instance)
        if fixed:
            plant.WeldFrames(plant.world_frame(), frame)
        plant.Finalize()
        self._plant, self._diagram = plant, builder.Build()
        self._context = plant.CreateDefaultContext()
        self._X_OW = frame.CalcPoseInWorld(self._context).inverse()

        bodies = [plant.get_body(index) for index in plant.GetBodyIndices(instance)]
        surfaces = [
            _surface(scene_graph, plant.GetBodyFrameIdOrThrow(body.index())) for body in bodies
        ]
        visible = [surface is not None for surface in surfaces]
        order = sorted(range(len(bodies)), key=lambda i: not visible[i])  # the visible first
        self._bodies = [bodies[i] for i in order]
        self.surfaces = tuple(surface for surface in surfaces if surface is not None)
        joints = [plant.get_joint(index) for index in plant.GetJointIndices()]
        floating = [joint.index() for joint in joints if joint.num_velocities() == 6]
        moved = [plant.GetBodiesKinematicallyAffectedBy([index]) for index in floating]
        self.pieces = max(len(moved), 1)
        piece = {body: k for k, bodies in enumerate(moved) for body in bodies}
        self._piece_of = [piece.get(body.index(), 0) for body in self._bodies]
        self.main = piece.get(frame.body().index(), 0)

        own = [joint for joint in joints if joint.num_positions() == 1]
        self._q = plant.GetPositions(self._context)
        self._position_of = [joint.position_start() for joint in own]
        self.rest = self._q[self._position_of]
        self.low = np.array([joint.position_lower_limits()[0] for joint in own])
        self.high = np.array([joint.position_upper_limits()[0] for joint in own])
        index_of = {body.index(): i for i, body in enumerate(self._bodies)}
        parent = {joint.child_body().index(): joint.parent_body().index() for joint in joints}
        # -1 where the parent is the world
        self._parents = [index_of.get(parent.get(b.index()), -1) for b in self._bodies]
        self._parents_first = sorted(range(len(self._bodies)), key=self._depth)
        self.scales: np.ndarray | None = None
        self._X_rest = self._body_poses(self.rest)
        self._points = {
            name: (index_of[plant.GetBodyByName(point.link, instance).index()], point.position)
            for name, point in model.labels.keypoints.items()
        }

    def scaled(self, scales: np.ndarray) -> Self:
        """Returns the shape with other scales of the visible links, (links, 3)."""
        scaled = object.__new__(type(self))
        vars(scaled).update(vars(self), scales=scales)
        return scaled

    def __reduce__(self) -> tuple:
        """Copies by making it anew, since Drake's systems are not copied."""
        return _made_again, (*self._made_of, self.scales)

    def place(self, X_P: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Returns the poses of the visible links, scale included, (links, 4, 4).

        Args:
            X_P: (pieces, 4, 4), poses of the pieces in any frame.
            joints: (joints,), positions, m or rad.
        """
        return self._poses(X_P, joints)[: len(self.surfaces)]

    def keypoints(self, X_P: np.ndarray, joints: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the labelled points, (3,) each, m; see `place`."""
        X = self._poses(X_P, joints)
        return {
            name: X[body, :3, :3] @ p + X[body, :3, 3] for name, (body, p) in self._points.items()
        }

    def _depth(self, body: int) -> int:
        parent = self._parents[body]
        return 0 if parent < 0 else 1 + self._depth(parent)

    def _poses(self, X_P: np.ndarray, joints: np.ndarray) -> np.ndarray:
        X_O = self._body_poses(joints)
        if self.scales is not None:
            X_O = self._scale(X_O, self.scales)
        return X_P[self._piece_of] @ X_O

    def _body_poses(self, joints: np.ndarray) -> np.ndarray:
        q = self._q.copy()
        q[self._position_of] = joints
        self._plant.SetPositions(self._context, q)
        return np.array(
            [
                (self._X_OW @ body.EvalPoseInWorld(self._context)).GetAsMatrix4()
                for body in self._bodies
            ]
        )

    def _scale(self, X_O: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Returns affine maps of the bodies, (bodies, 4, 4), from their poses."""
        size = np.ones((len(X_O), 3))
        size[: len(scales)] = scales
        X, rest = X_O.copy(), self._X_rest
        for i in self._parents_first:
            j = self._parents[i]
            if j < 0:
                R, p = rest[i, :3, :3], rest[i, :3, 3]
                X[i, :3, 3] += R @ (size[i] * (R.T @ p)) - p
            else:
                p_rest = rest[j, :3, :3].T @ (rest[i, :3, 3] - rest[j, :3, 3])
                X[i, :3, 3] += X[j, :3, 3] - X_O[j, :3, 3]
                X[i, :3, 3] += X_O[j, :3, :3] @ (size[j] * p_rest - p_rest)
        X[:, :3, :3] *= size[:, None]
        return X


def _made_again(model: Model, fixed: bool, scales: np.ndarray | None) -> Shape:
    shape = Shape(model, fixed)
    return shape if scales is None else shape.scaled(scales)


def _surface(scene_graph: SceneGraph, frame: FrameId) -> TriangleSurface | None:
    """Returns the visible surface of a link, if it has one."""
    triangles = link_triangles(scene_graph, frame)
    return TriangleSurface(triangles.astype(float)) if len(triangles) else None
