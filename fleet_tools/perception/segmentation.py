"""Which part of the scene each pixel shows."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from pydrake.geometry import FrameId, Role

if TYPE_CHECKING:
    from pydrake.geometry import QueryObject
    from pydrake.multibody.tree import ModelInstanceIndex

    from fleet_tools.world import World

BACKGROUND, ROBOT, TOOL, OBJECT = range(4)
SEGMENTS = ("background", "robot", "tool", "object")
"""Names of the values of a segmentation; the table is background."""


def segment_of_label(world: "World") -> np.ndarray:
    """Returns the segment of every render label, to be indexed by a label image."""
    table = np.full(_LABELS, BACKGROUND, np.uint8)
    inspector = world.scene_graph.model_inspector()
    instances = {world.arm: ROBOT, world.tool: TOOL, world.object: OBJECT}
    for instance, segment in instances.items():
        for frame in _frames(world, instance):
            for geometry in inspector.GetGeometries(frame, Role.kPerception):
                properties = inspector.GetPerceptionProperties(geometry)
                table[int(properties.GetProperty("label", "id"))] = segment
    return table


class Bounds:
    """Boxes around what can be seen of some model instances, wherever their links are."""

    def __init__(self, world: "World", instances: Iterable["ModelInstanceIndex"]) -> None:
        frames = [frame for instance in instances for frame in _frames(world, instance)]
        corners = {frame: _corners(world, frame) for frame in frames}
        self._p_B = {frame: points for frame, points in corners.items() if points.shape[1]}

    def corners(self, query: "QueryObject") -> np.ndarray:
        """Returns points in the world, (n, 3), whose convex hull holds all of it, m."""
        return np.concatenate(
            [(query.GetPoseInWorld(frame) @ p_B).T for frame, p_B in self._p_B.items()]
        )


def _frames(world: "World", instance: "ModelInstanceIndex") -> list[FrameId]:
    return [world.plant.GetBodyFrameIdOrThrow(body.index()) for body in world.bodies(instance)]


def _corners(world: "World", frame: FrameId) -> np.ndarray:
    """Corners of the boxes around a link's visual shapes, (3, n), in the link's frame."""
    inspector, signs = world.scene_graph.model_inspector(), np.array(_SIGNS).T
    found = [np.zeros((3, 0))]
    for geometry in inspector.GetGeometries(frame, Role.kPerception):
        box = inspector.GetObbInGeometryFrame(geometry)
        X_BBox = inspector.GetPoseInFrame(geometry) @ box.pose()
        found.append(X_BBox @ (signs * box.half_width()[:, None]))
    return np.concatenate(found, axis=1)


_SIGNS = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
_LABELS = 2**15
