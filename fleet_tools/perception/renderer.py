"""Renderers: what shows cameras one world after another.

`RENDERERS` names them, for `cloud_source` and `image_source` of an environment. A renderer of your
own is one more entry:

    RENDERERS["mine"] = MyRenderer
    env = gymnasium.make("FleetTools/Hammer-v0", obs_mode="rgbd", image_source="mine")
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np
from pydrake.geometry import QueryObject

from fleet_tools.errors import ConfigError
from fleet_tools.perception.camera_view import CameraView, Hits
from fleet_tools.perception.ray_renderer import RayRenderer
from fleet_tools.perception.render_scene import VtkRenderer
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World


class Renderer(Protocol):
    """Shows cameras one world after another.

    Attributes:
        shows: What it can show: channels of images ("rgb", "depth", "segmentation"), and "points".
    """

    @property
    def shows(self) -> Collection[str]:
        """What it can show, see the class."""
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


RENDERERS: dict[str, Callable[[], Renderer]] = {"rays": RayRenderer, "vtk": VtkRenderer}
"""Functions that make renderers, by name."""


def make_renderer(name: str, argument: str, shown: Collection[str]) -> Renderer:
    """Makes a renderer.

    Args:
        name: One of `RENDERERS`.
        argument: What chose it, such as "cloud_source", for error messages.
        shown: What it has to show, see `Renderer.shows`.

    Raises:
        ConfigError: It does not show this.
        MissingLibraryError: It lacks a library.
    """
    renderer = RENDERERS[name]()
    if missing := sorted(set(shown) - set(renderer.shows)):
        raise ConfigError(
            f"{argument}={name!r} shows {', '.join(sorted(renderer.shows))}, not "
            f"{', '.join(missing)}."
        )
    return renderer
