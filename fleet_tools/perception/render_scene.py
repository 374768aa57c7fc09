"""What can be seen of a world, apart from its physics: a scene graph of its own with the renderer.

Physics begins every episode in Drake's default context, and builds another world for every other
tool; either would make the renderer, its windows and its meshes anew: tens of milliseconds. Here
they stay.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from pydrake.math import RigidTransform
from pydrake.systems.framework import Context

from fleet_tools.errors import ConfigError
from fleet_tools.perception.pinhole import BOX_CORNERS
from fleet_tools.perception.rendering import add_renderer
from fleet_tools.perception.segmentation import BACKGROUND, OBJECT, ROBOT, TOOL

if TYPE_CHECKING:
    from fleet_tools.sim.world import World


MOST_PARTS = 16
"""So many links of tool and object together can be seen."""

_LASTING = (BACKGROUND, ROBOT)


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
    """The visual shapes of one world after another, each labelled with its segment.

    Robot and table are the same in all of them and stay; tool and object come and go.

    Args:
        world: The first of them; nothing is seen before `enter`.

    Raises:
        MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
    """

    def __init__(self, world: "World") -> None:
        self.scene_graph = SceneGraph()
        add_renderer(self.scene_graph)
        self.source = self.scene_graph.RegisterSource("world")
        self._spare = [self._add_frame(f"part {k}") for k in range(MOST_PARTS)]
        self._lasting: dict[str, Thing] = {}
        for link, segment in _links(world):
            if segment in _LASTING:
                name = world.scene_graph.model_inspector().GetName(link)
                self._lasting[name] = self._add(world, link, segment, self._add_frame(name))
        self.things: list[Thing] = []

    @cached_property
    def context(self) -> Context:
        """The one context; renderers are added before it is first used."""
        return self.scene_graph.CreateDefaultContext()

    def enter(self, world: "World") -> None:
        """Shows another world in place of the last one.

        Raises:
            ConfigError: Its tool and object have more than `MOST_PARTS` links.
        """
        links = list(_links(world))
        parts = [(link, segment) for link, segment in links if segment not in _LASTING]
        if len(parts) > MOST_PARTS:
            raise ConfigError(
                f"Tool and object have {len(parts)} links that can be seen; cameras show at most "
                f"{MOST_PARTS}."
            )
        for thing in self.things:
            for shape in thing.looks if thing.segment not in _LASTING else ():
                self.scene_graph.RemoveGeometry(self.context, self.source, shape)
        inspector = world.scene_graph.model_inspector()
        self.things = [
            replace(self._lasting[inspector.GetName(link)], link=link)
            for link, segment in links
            if segment in _LASTING
        ]
        for (link, segment), frame in zip(parts, self._spare, strict=False):
            self.things.append(self._add(world, link, segment, frame, self.context))

    def query(self, physics: QueryObject) -> QueryObject:
        """Moves everything to where it is now, and returns what can be rendered."""
        poses = FramePoseVector()
        for frame in self._spare:
            poses.set_value(frame, RigidTransform())
        for thing in self.things:
            poses.set_value(thing.frame, physics.GetPoseInWorld(thing.link))
        self.scene_graph.get_source_pose_port(self.source).FixValue(self.context, poses)
        return self.scene_graph.get_query_output_port().Eval(self.context)

    def boxes(self, query: QueryObject) -> np.ndarray:
        """Returns boxes (n, 8, 3) in the world that hold tool and object, m."""
        p_W = [
            query.GetPoseInWorld(thing.frame).multiply(thing.boxes).T
            for thing in self.things
            if thing.segment not in _LASTING
        ]
        return np.concatenate([np.zeros((0, 3)), *p_W]).reshape(-1, 8, 3)

    def _add_frame(self, name: str) -> FrameId:
        return self.scene_graph.RegisterFrame(self.source, GeometryFrame(name))

    def _add(
        self, world: "World", link: FrameId, segment: int, frame: FrameId, *context: Context
    ) -> Thing:
        """Hangs a link's shapes on a frame: in the context, or in the model of contexts to come."""
        inspector = world.scene_graph.model_inspector()
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
            added = self.scene_graph.RegisterGeometry(*context, self.source, frame, instance)
            looks[added] = properties
        return Thing(link, frame, segment, looks, np.concatenate(boxes, axis=1))


def _links(world: "World") -> Iterator[tuple[FrameId, int]]:
    """Yields the frame of each link that can be seen, and its segment."""
    inspector = world.scene_graph.model_inspector()
    segments = {world.arm: ROBOT, world.tool: TOOL, world.object: OBJECT}
    for frame in inspector.GetAllFrameIds():
        if inspector.NumGeometriesForFrameWithRole(frame, Role.kPerception):
            body = world.plant.GetBodyFromFrameId(frame)
            yield frame, segments.get(body.model_instance(), BACKGROUND)
