"""What can be seen of a world, apart from its physics: a scene graph of its own with the renderer.

Physics begins every episode in Drake's default context, which would make the renderer, its windows
and its meshes anew: tens of milliseconds. Here they stay, and are moved.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pydrake.geometry import (
    FrameId,
    FramePoseVector,
    GeometryFrame,
    GeometryId,
    GeometryInstance,
    PerceptionProperties,
    QueryObject,
    RenderLabel,
    Role,
    SceneGraph,
)
from pydrake.systems.framework import Context

from fleet_tools.perception.pinhole import BOX_CORNERS
from fleet_tools.perception.renderer import add_renderer
from fleet_tools.perception.segmentation import BACKGROUND, OBJECT, ROBOT, TOOL

if TYPE_CHECKING:
    from fleet_tools.world import World


@dataclass(frozen=True, eq=False)
class Thing:
    """A link as it is seen.

    Attributes:
        link: Its frame in the physics.
        frame: Its frame here.
        segment: What it belongs to.
        looks: What its shapes look like in the model files.
        boxes: (3, 8 n), corners of boxes around its n shapes, in the link's frame B, m.
    """

    link: FrameId
    frame: FrameId
    segment: int
    looks: dict[GeometryId, PerceptionProperties]
    boxes: np.ndarray


class Scenery:
    """The visual shapes of a world, each labelled with its segment.

    Args:
        world: It is not changed.

    Raises:
        MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
    """

    def __init__(self, world: "World") -> None:
        self.scene_graph = SceneGraph()
        add_renderer(self.scene_graph)
        self.source = self.scene_graph.RegisterSource("world")
        self.things = [self._add(world, frame, segment) for frame, segment in _links(world)]

    @cached_property
    def context(self) -> Context:
        """The one context; renderers are added before it is first used."""
        return self.scene_graph.CreateDefaultContext()

    def query(self, physics: QueryObject) -> QueryObject:
        """Moves everything to where it is now, and returns what can be rendered."""
        poses = FramePoseVector()
        for thing in self.things:
            if thing.frame != self.scene_graph.world_frame_id():
                poses.set_value(thing.frame, physics.GetPoseInWorld(thing.link))
        self.scene_graph.get_source_pose_port(self.source).FixValue(self.context, poses)
        return self.scene_graph.get_query_output_port().Eval(self.context)

    def boxes(self, query: QueryObject) -> np.ndarray:
        """Returns boxes (n, 8, 3) in the world that hold tool and object, m."""
        p_W = [
            query.GetPoseInWorld(thing.frame).multiply(thing.boxes).T
            for thing in self.things
            if thing.segment in (TOOL, OBJECT)
        ]
        return np.concatenate([np.zeros((0, 3)), *p_W]).reshape(-1, 8, 3)

    def _add(self, world: "World", link: FrameId, segment: int) -> Thing:
        inspector, frame = world.scene_graph.model_inspector(), self.scene_graph.world_frame_id()
        if link != world.scene_graph.world_frame_id():
            name = inspector.GetName(link)
            frame = self.scene_graph.RegisterFrame(self.source, GeometryFrame(name))
        looks, boxes = {}, []
        for shape in inspector.GetGeometries(link, Role.kPerception):
            X_BG = inspector.GetPoseInFrame(shape)
            box = inspector.GetObbInGeometryFrame(shape)
            corners = (BOX_CORNERS * box.half_width()).T
            boxes.append((X_BG @ box.pose()).multiply(corners))
            properties = PerceptionProperties(inspector.GetPerceptionProperties(shape))
            properties.UpdateProperty("label", "id", RenderLabel(segment))
            instance = GeometryInstance(X_BG, inspector.GetShape(shape), inspector.GetName(shape))
            instance.set_perception_properties(properties)
            looks[self.scene_graph.RegisterGeometry(self.source, frame, instance)] = properties
        return Thing(link, frame, segment, looks, np.concatenate(boxes, axis=1))


def _links(world: "World") -> Iterator[tuple[FrameId, int]]:
    """Yields the frame of each link that can be seen, and its segment."""
    inspector = world.scene_graph.model_inspector()
    segments = {world.arm: ROBOT, world.tool: TOOL, world.object: OBJECT}
    for frame in inspector.GetAllFrameIds():
        if inspector.NumGeometriesForFrameWithRole(frame, Role.kPerception):
            body = world.plant.GetBodyFromFrameId(frame)
            yield frame, segments.get(body.model_instance(), BACKGROUND)
