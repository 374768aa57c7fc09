"""Requests for measurements, and measurements, as values without a simulation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fleet_tools.config.cameras import Camera, Sensor
from fleet_tools.perception.camera_view import Channel

if TYPE_CHECKING:
    from pydrake.math import RigidTransform

    from fleet_tools.sim.world_state import WorldState

Seen = Literal["nothing", "points", "images"]
"""Requests to cameras: points of tool and object, images, or nothing."""
NOTHING: Seen = "nothing"

RENDERERS = {
    "rays": "fleet_tools.perception.renderer:RayRenderer",
    "vtk": "fleet_tools.perception.render_scene:VtkRenderer",
}
"""Functions that make renderers (`fleet_tools.perception.renderer.Renderer`), by name."""


@dataclass(frozen=True)
class ObservationConfig:
    """Request for a measurement besides the state.

    Attributes:
        seen: What cameras are asked for.
        renderer: What shows it, a name in `RENDERERS`, or module:name of one of a user's own.
        camera_size: (width, height) of every camera's images, in pixels.
        channels: The channels of images.
        cloud_size: Number of points of the tool, and of the object.
        sampling: How points are sampled, a name in `fleet_tools.perception.point_cloud.SAMPLINGS`.
        sensor: Errors of the cameras; None if they are ideal.
        cameras: The task's cameras.
        keypoint_rows: Rows for the keypoints of each part in the layout common to all tasks.
        has_place: Whether the task has a marked place.
    """

    seen: Seen
    renderer: str
    camera_size: tuple[int, int]
    channels: tuple[Channel, ...]
    cloud_size: tuple[int, int]
    sampling: str
    sensor: Sensor | None
    cameras: dict[str, Camera]
    keypoint_rows: int = 8
    has_place: bool = False

    @property
    def delayed(self) -> bool:
        """Whether cameras show the step before."""
        return self.sensor is not None and self.sensor.delay_steps == 1


@dataclass(frozen=True, eq=False)
class Capture:
    """Captures of the cameras at one moment.

    Attributes:
        X_WC: Poses of the cameras in the world, as calibrated.
        images: By camera and channel, see `fleet_tools.perception.renderer`; empty if points are
            asked for.
        points: Points of the tool (n, 3) and of the object (m, 3) in the world, m; None if images
            are asked for.
    """

    X_WC: "dict[str, RigidTransform]"
    images: dict[tuple[str, str], np.ndarray]
    points: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Measurement:
    """The state of the world at one moment, and the captures of its cameras.

    Attributes:
        state: The privileged state.
        shown: The capture of which the observation is made: with a delay, the step before's.
            None without cameras.
        latest: The capture of this moment, likewise.
        cloud: See `fleet_tools.perception.point_cloud.stack`, of what is shown, in the present
            frame of the end effector; None unless points are asked for.
    """

    state: "WorldState"
    shown: Capture | None = None
    latest: Capture | None = None
    cloud: np.ndarray | None = None

    def seen(self) -> Capture:
        """Returns what is shown; only for observations of cameras."""
        assert self.shown is not None
        return self.shown

    def seen_cloud(self) -> np.ndarray:
        """Returns the cloud; only for observations of points."""
        assert self.cloud is not None
        return self.cloud
