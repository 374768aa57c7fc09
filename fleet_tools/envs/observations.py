"""The layout of observations: proprioception, and the entries that the observation mode adds.

Every mode has the robot's own senses. `state` adds the keypoints of tool and object,
`multitask_state` the same in a layout common to all tasks, `point_cloud` their fused point cloud,
`rgbd` the images of all cameras.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from fleet_tools.config.tasks import ObservedKeypoints
from fleet_tools.errors import ConfigError
from fleet_tools.perception.measurement import Measurement
from fleet_tools.perception.observation_config import PADDED_UNIT, ObservationConfig
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.segmentation import SEGMENTS

MULTITASK_ROWS = 8
"""Number of rows for the keypoints of each part in the layout common to all tasks."""

Observation = dict[str, Any]
"""Arrays by the names of features."""


@dataclass(frozen=True, eq=False)
class Feature:
    """An entry of the observation.

    Attributes:
        space: Shape, dtype and limits.
        unit: Unit of the numbers.
        frame: Frame of the numbers; None where they have none.
        read: Takes the entry from a measurement.
        entries: Names along the first axis, where they have names.
    """

    space: spaces.Box
    unit: str
    frame: str | None
    read: Callable[[Measurement], np.ndarray]
    entries: tuple[str, ...] = ()


def features(
    keypoints: ObservedKeypoints, config: ObservationConfig, num_joints: int
) -> dict[str, Feature]:
    """Returns the entries of an environment's observations, by name.

    Args:
        keypoints: Keypoints that are observed.
        config: What is observed.
        num_joints: Number of the robot's joints.

    Raises:
        ConfigError: A task has too many keypoints for the layout common to all tasks.
    """
    own = _proprioception(num_joints)
    match config.obs_mode:
        case "state":
            return own | _keypoints(keypoints)
        case "multitask_state":
            return own | _padded(_keypoints(keypoints))
        case "point_cloud":
            return own | _point_cloud(config)
    return own | _images(config)


def observation_space(features: dict[str, Feature]) -> spaces.Dict:
    """Returns the space of `observe`."""
    return spaces.Dict({name: feature.space for name, feature in features.items()})


def observe(features: dict[str, Feature], measurement: Measurement) -> Observation:
    """Returns the observation of a measurement; the two share no memory."""
    return {
        name: np.array(feature.read(measurement), dtype=feature.space.dtype)
        for name, feature in features.items()
    }


def image_space(channel: str, height: int, width: int) -> spaces.Box:
    """Returns the space of a camera's images in one of the `CHANNELS`."""
    match channel:
        case "rgb":
            return spaces.Box(0, 255, (height, width, 3), np.uint8)
        case "depth":
            return spaces.Box(0, np.inf, (height, width), np.float32)
    return spaces.Box(0, len(SEGMENTS) - 1, (height, width), np.uint8)


def _box(*shape: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _proprioception(num_joints: int) -> dict[str, Feature]:
    joints = _box(num_joints)
    return {
        "joint_position": Feature(joints, "rad", None, lambda measurement: measurement.state.q),
        "joint_velocity": Feature(joints, "rad/s", None, lambda measurement: measurement.state.v),
        "joint_external_torque": Feature(  # on the joints, from contact
            joints, "N m", None, lambda measurement: measurement.state.tau_external
        ),
        "end_effector_pose": Feature(
            _box(3, 4),
            "rotation matrix | m",
            "world: [R_WE | p_WE]",
            lambda measurement: measurement.state.X_WE.GetAsMatrix34(),
        ),
        "end_effector_wrench": Feature(  # on the end effector, from contact
            _box(6),
            "N m, N",
            "end effector: [moment, force] at its origin",
            lambda measurement: measurement.state.F_E,
        ),
    }


def _keypoints(keypoints: ObservedKeypoints) -> dict[str, Feature]:
    def feature(part: Literal["tool", "object"], names: tuple[str, ...]) -> Feature:
        def read(measurement: Measurement) -> np.ndarray:
            state = measurement.state
            p_E = state.in_end_effector(state.p_W_tool if part == "tool" else state.p_W_object)
            return np.array([p_E[name] for name in names])

        return Feature(_box(len(names), 3), "m", "end effector", read, names)

    return {
        "tool_keypoints": feature("tool", keypoints.tool),
        "object_keypoints": feature("object", keypoints.object),
    }


def _padded(keypoints: dict[str, Feature]) -> dict[str, Feature]:
    def feature(name: str, own: Feature) -> Feature:
        count = len(own.entries)
        if count > MULTITASK_ROWS:
            raise ConfigError(
                f'obs_mode="multitask_state" holds {MULTITASK_ROWS} {name}, and the task observes '
                f'{count}. Observe fewer, or use "state".'
            )

        def read(measurement: Measurement) -> np.ndarray:
            rows = np.zeros((MULTITASK_ROWS, 4))
            rows[:count, :3], rows[:count, 3] = own.read(measurement), 1
            return rows

        return Feature(_box(MULTITASK_ROWS, 4), PADDED_UNIT, own.frame, read)

    return {name: feature(name, own) for name, own in keypoints.items()}


def _point_cloud(config: ObservationConfig) -> dict[str, Feature]:
    return {
        "point_cloud": Feature(
            _box(sum(config.cloud_size), 4),
            "m, mask: 1 tool, -1 object, 0 out of view",
            "end effector",
            lambda measurement: measurement.cloud,
        )
    }


_CHANNEL_UNITS = {
    "rgb": "1/255",
    "depth": "m, 0 too near, inf too far",
    "segmentation": ", ".join(f"{value} {name}" for value, name in enumerate(SEGMENTS)),
}


def _images(config: ObservationConfig) -> dict[str, Feature]:
    width, height = config.camera_size
    entries = {}
    for name, camera in config.cameras.items():
        frame = f"camera {name}"
        for channel in config.channels:
            entries[f"{name}_{channel}"] = Feature(
                image_space(channel, height, width),
                _CHANNEL_UNITS[channel],
                frame,
                lambda measurement, key=(name, channel): measurement.shown.images[key],
            )
        K = Pinhole.of(camera, config.camera_size).matrix()
        entries[f"{name}_K"] = Feature(_box(3, 3), "pixel", frame, lambda measurement, K=K: K)
        entries[f"{name}_X_WC"] = Feature(
            _box(3, 4),
            "rotation matrix | m",
            "world: [R_WC | p_WC], x right in the picture, y down, z into it",
            lambda measurement, name=name: measurement.shown.X_WC[name].GetAsMatrix34(),
        )
    return entries
