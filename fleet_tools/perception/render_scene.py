"""Visual side of a world: its scene graph and the renderer.

The physics starts every episode in Drake's default context, and builds another world for every
other tool; either would rebuild the renderer, its windows and its meshes, which takes tens of
milliseconds. Here they are kept.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

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

from fleet_tools.config.file_access import PLAIN
from fleet_tools.errors import ConfigError
from fleet_tools.perception.camera_view import (
    BACKGROUND,
    BOX_CORNERS,
    MARK,
    OBJECT,
    OTHER_OBJECT,
    ROBOT,
    TOOL,
    CameraView,
    Hits,
)
from fleet_tools.perception.opengl import require_gl
from fleet_tools.perception.point_cloud import segment_hits
from fleet_tools.perception.rendering import (
    VTK,
    Tint,
    add_renderer,
    painted,
    render_depth,
    render_rgb,
    render_segmentation,
)
from fleet_tools.perception.visible_links import visible_frames
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World

MAX_LINKS = 16
"""Largest number of visible links of tool and objects together."""

_PERMANENT = (BACKGROUND, ROBOT, MARK)


@dataclass(frozen=True, eq=False)
class RenderedLink:
    """A visible link.

    Attributes:
        physics_frame: Frame of the link in the physics.
        frame: Frame of the link here.
        segment: Segment to which it belongs.
        appearance: Perception properties of its shapes in the model files.
        boxes: (3, 8 n), corners of boxes around its n shapes, in the link's frame B, m.
    """

    physics_frame: FrameId
    frame: FrameId
    segment: int
    appearance: dict[GeometryId, PerceptionProperties]
    boxes: np.ndarray


class RenderScene:
    """The visual shapes of one world after another, each labelled with its segment.

    Robot and table are the same in all worlds and stay; tool and object are exchanged.

    Args:
        world: The first world; nothing is visible before `enter`.
        shadows: Whether bodies cast shadows, see `add_renderer`.

    Attributes:
        scene_graph: Drake's scene graph, with the renderer.
        source: Geometry source of all shapes.
        links: The visible links.

    Raises:
        MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
    """

    def __init__(self, world: World, *, shadows: bool = False) -> None:
        self.scene_graph = SceneGraph()
        add_renderer(self.scene_graph, shadows=shadows)
        self.source = self.scene_graph.RegisterSource("world")
        self._spare = [self._add_frame(f"part {k}") for k in range(MAX_LINKS)]
        self._permanent: dict[str, RenderedLink] = {}
        for physics_frame, segment in visible_frames(world):
            if segment in _PERMANENT:
                name = world.scene_graph.model_inspector().GetName(physics_frame)
                frame = self._add_frame(name)
                self._permanent[name] = self._add(world, physics_frame, segment, frame)
        self.links: list[RenderedLink] = []

    @cached_property
    def context(self) -> Context:
        """The context; renderers must be added before its first use."""
        return self.scene_graph.CreateDefaultContext()

    def enter(self, world: World) -> None:
        """Replaces the last world by another one.

        Raises:
            ConfigError: Tool and object have more than `MAX_LINKS` visible links.
        """
        frames = list(visible_frames(world))
        parts = [(frame, segment) for frame, segment in frames if segment not in _PERMANENT]
        if len(parts) > MAX_LINKS:
            raise ConfigError(
                f"Tool and object have {len(parts)} visible links; cameras show at most "
                f"{MAX_LINKS}."
            )
        for link in self.links:
            for shape in link.appearance if link.segment not in _PERMANENT else ():
                self.scene_graph.RemoveGeometry(self.context, self.source, shape)
        inspector = world.scene_graph.model_inspector()
        self.links = [
            replace(self._permanent[inspector.GetName(frame)], physics_frame=frame)
            for frame, segment in frames
            if segment in _PERMANENT
        ]
        for (physics_frame, segment), frame in zip(parts, self._spare, strict=False):
            self.links.append(self._add(world, physics_frame, segment, frame, self.context))

    def paint(self, scene: Scene, shown: Callable[[Tint], Tint] = lambda tint: tint) -> None:
        """Sets the appearance of a scene, whose tints scale the colours of the model files.

        Args:
            scene: The scene.
            shown: Returns the tint that is shown, given the scene's; the cameras observe the
                scene's.
        """
        by_segment = {
            TOOL: (shown(scene.tool_tint), PLAIN),
            OBJECT: (shown(scene.object_tint), PLAIN),
            OTHER_OBJECT: (shown(scene.object_tint), PLAIN),
            BACKGROUND: (shown(scene.table_tint), scene.table_texture),
        }
        graph, source, context = self.scene_graph, self.source, self.context
        for link in self.links:
            if link.segment not in by_segment:
                continue
            for shape, properties in link.appearance.items():
                # Drake cannot replace perception properties, but it can remove and assign them.
                graph.RemoveRole(context, source, shape, Role.kPerception)
                graph.AssignRole(
                    context, source, shape, painted(properties, *by_segment[link.segment])
                )

    def query(self, physics: QueryObject) -> QueryObject:
        """Moves all links to their present poses, and returns the query object for rendering."""
        poses = FramePoseVector()
        for frame in self._spare:
            poses.set_value(frame, RigidTransform())
        for link in self.links:
            poses.set_value(link.frame, physics.GetPoseInWorld(link.physics_frame))
        self.scene_graph.get_source_pose_port(self.source).FixValue(self.context, poses)
        return self.scene_graph.get_query_output_port().Eval(self.context)

    def images(
        self,
        physics: QueryObject,
        views: Iterable[CameraView],
        channels: Collection[str],
        color_renderer: str = VTK,
    ) -> list[dict[str, np.ndarray]]:
        """Returns the images of each camera, by channel; see `renderer.Renderer.images`.

        Args:
            physics: Query object of the physics.
            views: The cameras.
            channels: The channels.
            color_renderer: Name in Drake of the renderer of colours.
        """
        query = self.query(physics)
        return [
            {channel: _image(query, view, channel, color_renderer) for channel in channels}
            for view in views
        ]

    def points(self, physics: QueryObject, views: Iterable[CameraView]) -> list[dict[int, Hits]]:
        """Returns the points of tool and object in each camera; see `Renderer.points`."""
        query = self.query(physics)
        boxes_W = self.boxes(query)
        return [_hits(query, view, boxes_W) for view in views]

    def boxes(self, query: QueryObject) -> np.ndarray:
        """Returns boxes (n, 8, 3) in the world that contain tool and object, m."""
        p_W = [
            query.GetPoseInWorld(link.frame).multiply(link.boxes).T
            for link in self.links
            if link.segment in (TOOL, OBJECT)
        ]
        return np.concatenate([np.zeros((0, 3)), *p_W]).reshape(-1, 8, 3)

    def _add_frame(self, name: str) -> FrameId:
        return self.scene_graph.RegisterFrame(self.source, GeometryFrame(name))

    def _add(
        self,
        world: World,
        physics_frame: FrameId,
        segment: int,
        frame: FrameId,
        context: Context | None = None,
    ) -> RenderedLink:
        """Adds a link's shapes to a frame: in the context, or in the model of future contexts."""
        inspector = world.scene_graph.model_inspector()
        appearance, boxes = {}, []
        for shape in inspector.GetGeometries(physics_frame, Role.kPerception):
            X_BG = inspector.GetPoseInFrame(shape)
            box = inspector.GetObbInGeometryFrame(shape)
            assert box is not None  # only half spaces have none, and models are meshes and solids
            corners = (BOX_CORNERS * box.half_width()).T
            boxes.append((X_BG @ box.pose()).multiply(corners))
            properties = PerceptionProperties(inspector.GetPerceptionProperties(shape))
            label = BACKGROUND if segment in (OTHER_OBJECT, MARK) else segment
            properties.UpdateProperty("label", "id", RenderLabel(label))
            instance = GeometryInstance(X_BG, inspector.GetShape(shape), inspector.GetName(shape))
            instance.set_perception_properties(properties)
            if context is None:
                added = self.scene_graph.RegisterGeometry(self.source, frame, instance)
            else:
                added = self.scene_graph.RegisterGeometry(context, self.source, frame, instance)
            appearance[added] = properties
        corners = np.concatenate(boxes, axis=1)
        return RenderedLink(physics_frame, frame, segment, appearance, corners)


def _image(query: QueryObject, view: CameraView, channel: str, color_renderer: str) -> np.ndarray:
    match channel:
        case "rgb":
            return render_rgb(query, view.pinhole, view.X_WC, color_renderer)
        case "depth":
            return render_depth(query, view.pinhole, view.X_WC, view.depth_range_m)
        case "segmentation":
            return render_segmentation(query, view.pinhole, view.X_WC)
    raise ConfigError(f"VTK cannot render the channel {channel!r}.")


def _hits(query: QueryObject, view: CameraView, boxes_W: np.ndarray) -> dict[int, Hits]:
    pinhole, (near, far) = view.pinhole, view.depth_range_m
    boxes_C = view.X_WC.inverse().multiply(boxes_W.reshape(-1, 3).T).T.reshape(-1, 8, 3)
    window = pinhole.window_around(boxes_C, near_m=near)
    if window is None:
        nothing = Hits(np.zeros(0, int), np.zeros(0, np.float32))
        return {TOOL: nothing, OBJECT: nothing}
    cropped = pinhole.cropped(window)  # the smaller the image, the cheaper
    depth = render_depth(query, cropped, view.X_WC, (near, far))
    segments = render_segmentation(query, cropped, view.X_WC)
    hits = {part: segment_hits(depth, segments, part) for part in (TOOL, OBJECT)}
    return {
        part: Hits(window.in_image(each.pixels, pinhole.width), each.depths)
        for part, each in hits.items()
    }


class VtkRenderer:
    """Renders one world after another by VTK; see `renderer.Renderer`.

    Pictures for people have a renderer of their own, with other lights, so that a policy observes
    the same whether it is watched or not.

    Args:
        shadows: Whether bodies cast shadows, see `add_renderer`.
        shown: Returns the tint that is shown, see `RenderScene.paint`.

    Raises:
        MissingLibraryError: OpenGL is missing; its driver is not touched before `enter`.
    """

    shows = frozenset({"points", "rgb", "depth", "segmentation"})

    def __init__(
        self, *, shadows: bool = False, shown: Callable[[Tint], Tint] = lambda tint: tint
    ) -> None:
        require_gl()
        self._shadows, self._shown = shadows, shown
        self._render_scene: RenderScene | None = None
        self._scene: Scene | None = None
        self._unpainted: Scene | None = None
        self._color_renderer = VTK

    def enter(self, world: World) -> None:
        """Prepares to show another world.

        Raises:
            MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
            ConfigError: The world has too many visible links.
        """
        if self._render_scene is None:
            self._render_scene = RenderScene(world, shadows=self._shadows)
        self._render_scene.enter(world)
        self._unpainted = self._scene

    def begin(self, scene: Scene) -> None:
        """Begins an episode in a scene of this world."""
        self._scene = self._unpainted = scene

    def images(
        self, physics: QueryObject, views: Iterable[CameraView], channels: Collection[str]
    ) -> list[dict[str, np.ndarray]]:
        """Returns the images of each camera, by channel."""
        render_scene = self._entered()
        if "rgb" in channels and self._unpainted is not None:
            render_scene.paint(self._unpainted, self._shown)
            self._unpainted = None
        return render_scene.images(physics, views, channels, self._color_renderer)

    def points(self, physics: QueryObject, views: Iterable[CameraView]) -> list[dict[int, Hits]]:
        """Returns the points of tool and object in each camera; see `Renderer.points`."""
        return self._entered().points(physics, views)

    def close(self) -> None:
        """Releases OpenGL; `enter` starts anew."""
        self._render_scene = None

    def _entered(self) -> RenderScene:
        if self._render_scene is None:
            raise RuntimeError(
                "This renderer belongs to no world yet; make a simulation with it first."
            )
        return self._render_scene
