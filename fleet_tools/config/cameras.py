"""Schema of a task file's cameras, and of the errors of depth cameras.

Figures of errors are of the device. Those in pixels are of its own depth image, which has `rows`
rows, so that they mean the same at any resolution of observed images. A distribution is drawn anew
for each camera and scene. Where no source is named, the figure is chosen.
"""

from typing import Annotated, Literal, get_args

import pydantic

from fleet_tools.config.distributions import Distribution, Uniform, bounds
from fleet_tools.config.randomization import RandomPose
from fleet_tools.config.values import Count, NonNegative, Number, Positive, Value

CLIPPING_M = (0.01, 10.0)
"""Near and far clipping distances of every camera, m."""


class Camera(Value):
    """An RGB-D camera with square pixels; each scene draws its extrinsics X_FC."""

    frame: Literal["world", "end_effector"]
    """Frame F to which the camera is fixed."""
    field_of_view_deg: Annotated[Number, pydantic.Field(gt=0, lt=180)]
    """Vertical field of view, at any resolution."""
    depth_range_m: tuple[Positive, Positive]
    """Nearest and farthest measured depth; nearer points read 0, farther ones infinity."""

    @pydantic.field_validator("depth_range_m")
    @classmethod
    def _ordered(cls, given: tuple[float, float]) -> tuple[float, float]:
        near, far = given
        if not CLIPPING_M[0] <= near < far <= CLIPPING_M[1]:
            raise ValueError(f"expected the nearer limit first, and both within {CLIPPING_M}")
        return given


CAMERAS: dict[str, Camera] = {
    "overhead": Camera(frame="world", field_of_view_deg=40.0, depth_range_m=(0.1, 3.0)),
    "wrist": Camera(frame="end_effector", field_of_view_deg=70.0, depth_range_m=(0.05, 3.0)),
}
"""The cameras of a task that names none: one before the robot, one on the hand."""

SensorName = Literal["ideal", "active_stereo", "structured_light"]
"""Kinds of depth cameras; ideal ones make no errors."""
SENSORS: tuple[SensorName, ...] = get_args(SensorName)
IDEAL = SENSORS[0]


def _not_negative(given: Distribution) -> Distribution:
    if bounds(given)[0] < 0:
        raise ValueError("expected a number of at least 0")
    return given


_MILLIMETRES = Uniform(uniform=(-0.002, 0.002))
_TENTHS_OF_DEGREES = Uniform(uniform=(-0.2, 0.2))
_CALIBRATION_ERROR = RandomPose(
    translation_m=(_MILLIMETRES, _MILLIMETRES, _MILLIMETRES),
    rpy_deg=(_TENTHS_OF_DEGREES, _TENTHS_OF_DEGREES, _TENTHS_OF_DEGREES),
)


class Baseline(Value):
    """Distance between the two imagers of a stereo camera, by the frame that carries it."""

    world: Positive = 0.055
    """Of the RealSense D415 (data sheet of the D400 series, Intel document 337029)."""
    end_effector: Positive = 0.018
    """Of the RealSense D405, made for short distances (the same data sheet)."""


class ActiveStereo(Value):
    """An active stereo camera, such as a RealSense of the series D400.

    Its noise comes from disparities: sigma_z = z^2 / (f b) sigma_d.
    """

    rows: Count = 720
    """Rows of its depth image, from which its focal length f in pixels follows."""
    disparity_noise_px: Distribution = 0.08
    """Standard deviation sigma_d of disparities: the figure that Grunnet-Jepsen recommends
    (librealsense, issue 3904) for the formula of Grunnet-Jepsen, Sweetser and Woodfill, "Best-known
    methods for tuning Intel RealSense D400 depth cameras for best performance"."""
    baseline_m: Baseline = Baseline()
    """Baseline b."""
    lateral_noise_px: Distribution = 1.2
    """Standard deviation of the displacement of edges along each axis of the image: 0.8 px of 480
    rows, as for structured light, since none is published for this device."""
    window_px: Positive = 7.0
    """Distance over which errors are correlated: the width of the matching window of the R200
    (Keselman, Woodfill, Grunnet-Jepsen and Bhowmik, "Intel RealSense stereoscopic depth cameras",
    2017); the D400's is not published."""
    calibration_error: RandomPose = _CALIBRATION_ERROR
    """Pose of the camera as calibrated in the camera as it is."""
    delay_steps: Literal[0, 1] = 1
    """Control steps from an image to its observation."""

    _magnitudes = pydantic.field_validator("disparity_noise_px", "lateral_noise_px")(_not_negative)


class StructuredLight(Value):
    """A structured-light camera: the first Kinect.

    Axial noise sigma_z = floor + growth (z - nearest)^2 and lateral noise follow Nguyen,
    Izadi and Lovell, "Modeling Kinect sensor noise for improved 3D reconstruction and tracking"
    (2012). They hold for surfaces that are inclined by up to 60 degrees.
    """

    rows: Count = 480
    """Rows of its depth image."""
    axial_floor_m: Distribution = 0.0012
    """Standard deviation of depths at the nearest distance, and below it."""
    axial_growth_per_m: Distribution = 0.0019
    """Growth of the standard deviation with the square of the distance beyond it, 1/m."""
    axial_nearest_m: NonNegative = 0.4
    """Nearest distance of the device."""
    lateral_noise_px: Distribution = 0.8
    """Standard deviation of the displacement of edges along each axis of the image."""
    window_px: Positive = 9.0
    """Distance over which errors are correlated: the width of its matching window, as estimated by
    Konolige and Mihelich, "Technical description of Kinect calibration"."""
    calibration_error: RandomPose = _CALIBRATION_ERROR
    """Pose of the camera as calibrated in the camera as it is."""
    delay_steps: Literal[0, 1] = 1
    """Control steps from an image to its observation."""

    _magnitudes = pydantic.field_validator(
        "axial_floor_m", "axial_growth_per_m", "lateral_noise_px"
    )(_not_negative)


Sensor = ActiveStereo | StructuredLight


class Sensors(Value):
    """Errors by kind of depth camera; an environment that names no kind has ideal cameras."""

    active_stereo: ActiveStereo = ActiveStereo()
    """Errors with `sensors="active_stereo"`."""
    structured_light: StructuredLight = StructuredLight()
    """Errors with `sensors="structured_light"`."""

    def named(self, name: SensorName) -> Sensor | None:
        """Returns a kind of depth camera; None for ideal ones."""
        return None if name == IDEAL else getattr(self, name)
