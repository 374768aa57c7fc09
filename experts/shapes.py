"""Shapes of models: surfaces of links, the poses that these can have, and labelled points.

A shape has pieces that move independently of each other: the one that is fixed to the world or to
the hand, or each of the bodies that lie free on the table. The pose of a piece is that of the
model's frame if the whole model had moved with it, so that all pieces begin with the same.

Links can be scaled, each along the axes of its frame. What a link carries moves with its scale: the
frames of the links that are joined to it, at rest. A joint's own motion is not scaled.
"""

from typing import Self

import numpy as np
from pydrake.geometry import FrameId, SceneGraph
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph
from pydrake.systems.framework import DiagramBuilder

from fleet_tools.config.control import TIME_STEP
from fleet_tools.experts.closest_points import Surface
from fleet_tools.perception.visible_links import link_triangles
from fleet_tools.sim.add_models import add_model
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.model_checks import model_frame


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


def _surface(scene_graph: SceneGraph, frame: FrameId) -> Surface | None:
    """Returns the visible surface of a link, if it has one."""
    triangles = link_triangles(scene_graph, frame)
    return Surface(triangles.astype(float)) if len(triangles) else None
