"""Renderers for cameras: ray casting without OpenGL, or VTK.

Rays are cast where a link of tool or object can be in the image. A point that one hits is visible
if no other link hides it. What a camera on the hand sees of what the hand holds is computed once an
episode, since they do not move relative to each other.

`cloud_source` and `image_source` of an environment name one (`measurement.RENDERERS`); one of your
own, as module:name of a function or class that makes it:

    gymnasium.make("FleetTools/Hammer-v0", obs_mode="rgbd", image_source="my_module:MyRenderer")
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pydrake.geometry import FrameId, QueryObject

from fleet_tools.errors import ConfigError
from fleet_tools.perception.camera_view import OBJECT, TOOL, CameraView, Hits
from fleet_tools.perception.ray_casting import CameraRays, RaySurface, require_embree
from fleet_tools.perception.visible_links import link_triangles, visible_frames
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World


class Renderer(Protocol):
    """Shows cameras one world after another.

    Attributes:
        shows: What it can show: channels of images ("rgb", "depth", "segmentation"), and "points".
    """

    @property
    def shows(self) -> Collection[str]:
        """Kinds of images that it can render, see the class."""
        ...

    def enter(self, world: World) -> None:
        """Prepares to show another world, of which a scene begins next.

        Raises:
            FleetToolsError: It cannot be shown here.
        """
        ...

    def begin(self, scene: Scene) -> None:
        """Begins an episode in a scene of this world; its initial state is shown next."""
        ...

    def images(
        self, physics: QueryObject, views: Sequence[CameraView], channels: Collection[str]
    ) -> list[dict[str, np.ndarray]]:
        """Returns the images of each camera, by channel.

        Args:
            physics: Query object of the physics.
            views: The cameras.
            channels: Those of `shows` that are asked for.

        Returns:
            For each camera "rgb": (height, width, 3) uint8; "depth": (height, width) float32,
            distances along the camera's z axis, m, 0 below the range, infinity beyond it;
            "segmentation": (height, width) uint8, see `camera_view.SEGMENTS`.
        """
        ...

    def points(self, physics: QueryObject, views: Sequence[CameraView]) -> list[dict[int, Hits]]:
        """Returns what each camera sees of tool and object, by segment, in the order of pixels."""
        ...

    def close(self) -> None:
        """Releases what it holds; `enter` starts anew."""
        ...


# --- Rays -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _SeenLink:
    """A visible link.

    Attributes:
        frame: Its frame in the physics.
        segment: Segment to which it belongs.
        surface: Its surface.
        held: Whether it is fixed to the end effector.
    """

    frame: FrameId
    segment: int
    surface: RaySurface
    held: bool


class RayRenderer:
    """Shows the points of one world after another; see `Renderer`.

    Raises:
        MissingLibraryError: Embree is missing.
    """

    shows = frozenset({"points"})

    def __init__(self) -> None:
        require_embree()
        self._links: list[_SeenLink] = []
        self._of_fixed: dict[tuple[str, int], Hits] = {}

    def enter(self, world: World) -> None:
        """Replaces the last world by another one.

        Raises:
            ConfigError: A mesh cannot be read.
        """
        held = {body.index() for body in world.plant.GetBodiesWeldedTo(world.hand().body())}
        self._links = []
        for frame, segment in visible_frames(world):
            triangles = link_triangles(world.scene_graph, frame)
            if len(triangles):
                body = world.plant.GetBodyFromFrameId(frame).index()
                self._links.append(_SeenLink(frame, segment, RaySurface(triangles), body in held))

    def begin(self, scene: Scene) -> None:
        """Begins an episode. Its initial state has to be seen first, so that bits repeat."""
        self._of_fixed = {}

    def images(
        self, physics: QueryObject, views: Iterable[CameraView], channels: Collection[str]
    ) -> list[dict[str, np.ndarray]]:
        """Refuses, as rays show points alone.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "Ray casting returns points, not images. Use another renderer for images."
        )

    def points(self, physics: QueryObject, views: Iterable[CameraView]) -> list[dict[int, Hits]]:
        """Returns what each camera sees of tool and object, by segment, in the order of pixels."""
        X_WB = np.array(
            [physics.GetPoseInWorld(link.frame).GetAsMatrix34() for link in self._links]
        )
        surfaces = [link.surface for link in self._links]
        return [
            self._hits(CameraRays(view.pinhole, view.X_WC.GetAsMatrix34(), surfaces, X_WB), view)
            for view in views
        ]

    def close(self) -> None:
        """Forgets the world."""
        self._links, self._of_fixed = [], {}

    def _hits(self, rays: CameraRays, view: CameraView) -> dict[int, Hits]:
        fixed, moving = set[int](), set(range(len(self._links)))  # in the camera's frame
        if view.frame == "end_effector":
            fixed = {k for k in moving if self._links[k].held}
            moving -= fixed
        seen: dict[int, list[Hits]] = {TOOL: [], OBJECT: []}
        for k, link in enumerate(self._links):
            if link.segment not in seen:
                continue
            if k in moving:
                hits = rays.visible(k, rays.hits(k), (moving | fixed) - {k})
            else:
                if (view.name, k) not in self._of_fixed:
                    self._of_fixed[view.name, k] = rays.visible(k, rays.hits(k), fixed - {k})
                hits = rays.visible(k, self._of_fixed[view.name, k], moving)
            seen[link.segment].append(hits)
        return {segment: _in_range(hits, view) for segment, hits in seen.items()}


def _in_range(hits: list[Hits], view: CameraView) -> Hits:
    """Returns the points of several links within the camera's range."""
    pixels = np.concatenate([np.zeros(0, int), *(each.pixels for each in hits)])
    depths = np.concatenate([np.zeros(0, np.float32), *(each.depths for each in hits)])
    near, far = view.depth_range_m
    (chosen,) = np.nonzero((depths >= near) & (depths <= far))
    chosen = chosen[np.argsort(pixels[chosen], kind="stable")]
    return Hits(pixels[chosen], depths[chosen])
