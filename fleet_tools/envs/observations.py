"""The layout of observations: proprioception, and the entries that the observation mode adds.

Every mode has the robot's own senses. `state` adds the keypoints of tool and object,
`multitask_state` the same in a layout common to all tasks, `point_cloud` their fused point cloud,
`rgbd` the images of all cameras.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from fleet_tools.config.tasks import ObservedKeypoints
from fleet_tools.envs.array_spec import ArraySpec, Kind
from fleet_tools.errors import ConfigError
from fleet_tools.perception.measurement import Measurement
from fleet_tools.perception.observation_config import ObservationConfig
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.segmentation import SEGMENTS

MULTITASK_ROWS = 8
"""Number of rows for the keypoints of each part in the layout common to all tasks."""

Observation = dict[str, Any]
"""Arrays by the names of features."""


@dataclass(frozen=True, eq=False)
class Observable:
    """An entry of the observation, and where it comes from.

    Attributes:
        spec: What it is.
        read: Takes it from a measurement.
    """

    spec: ArraySpec
    read: Callable[[Measurement], np.ndarray]


def observables(keypoints: ObservedKeypoints, config: ObservationConfig) -> dict[str, Observable]:
    """Returns the entries of an environment's observations, by name.

    Raises:
        ConfigError: A task has too many keypoints for the layout common to all tasks.
    """
    match config.obs_mode:
        case "state":
            return _PROPRIOCEPTION | _keypoints(keypoints)
        case "multitask_state":
            return _PROPRIOCEPTION | _padded(_keypoints(keypoints))
        case "point_cloud":
            return _PROPRIOCEPTION | _point_cloud(config)
    return _PROPRIOCEPTION | _images(config)


def observation_space(features: Mapping[str, ArraySpec]) -> spaces.Dict:
    """Returns the space of observations with these entries."""
    return spaces.Dict({name: spec.space for name, spec in features.items()})


def observe(observables: Mapping[str, Observable], measurement: Measurement) -> Observation:
    """Returns the observation of a measurement; the two share no memory."""
    return {
        name: np.array(each.read(measurement), dtype=each.spec.dtype)
        for name, each in observables.items()
    }


def _numbers(
    kind: Kind,
    shape: tuple[int, ...],
    unit: str,
    frame: str | None,
    read: Callable[[Measurement], np.ndarray],
    entries: tuple[str, ...] = (),
) -> Observable:
    spec = ArraySpec(
        kind=kind, shape=shape, dtype="float32", unit=unit, frame=frame, entries=entries
    )
    return Observable(spec, read)


_PROPRIOCEPTION = {
    "joint_position": _numbers("state", (7,), "rad", None, lambda measured: measured.state.q),
    "joint_velocity": _numbers("state", (7,), "rad/s", None, lambda measured: measured.state.v),
    "joint_external_torque": _numbers(  # on the joints, from contact
        "state", (7,), "N m", None, lambda measured: measured.state.tau_external
    ),
    "end_effector_pose": _numbers(
        "state",
        (3, 4),
        "rotation matrix | m",
        "world: [R_WE | p_WE]",
        lambda measured: measured.state.X_WE.GetAsMatrix34(),
    ),
    "end_effector_wrench": _numbers(  # on the end effector, from contact
        "state",
        (6,),
        "N m, N",
        "end effector: [moment, force] at its origin",
        lambda measured: measured.state.F_E,
    ),
}


def _keypoints(keypoints: ObservedKeypoints) -> dict[str, Observable]:
    def observable(part: Literal["tool", "object"], names: tuple[str, ...]) -> Observable:
        def read(measurement: Measurement) -> np.ndarray:
            state = measurement.state
            p_E = state.in_end_effector(state.p_W_tool if part == "tool" else state.p_W_object)
            return np.array([p_E[name] for name in names])

        return _numbers("keypoints", (len(names), 3), "m", "end effector", read, names)

    return {
        "tool_keypoints": observable("tool", keypoints.tool),
        "object_keypoints": observable("object", keypoints.object),
    }


def _padded(keypoints: dict[str, Observable]) -> dict[str, Observable]:
    def observable(name: str, own: Observable) -> Observable:
        count = len(own.spec.entries)
        if count > MULTITASK_ROWS:
            raise ConfigError(
                f'obs_mode="multitask_state" holds {MULTITASK_ROWS} {name}, and the task observes '
                f'{count}. Observe fewer, or use "state".'
            )

        def read(measurement: Measurement) -> np.ndarray:
            rows = np.zeros((MULTITASK_ROWS, 4))
            rows[:count, :3], rows[:count, 3] = own.read(measurement), 1
            return rows

        unit = "m, mask: 1 there, 0 not"
        return _numbers("masked_keypoints", (MULTITASK_ROWS, 4), unit, own.spec.frame, read)

    return {name: observable(name, own) for name, own in keypoints.items()}


def _point_cloud(config: ObservationConfig) -> dict[str, Observable]:
    return {
        "point_cloud": _numbers(
            "points",
            (sum(config.cloud_size), 4),
            "m, mask: 1 tool, -1 object, 0 out of view",
            "end effector",
            lambda measured: measured.cloud,
        )
    }


def _image(kind: Kind, size: tuple[int, int], frame: str, key: tuple[str, str]) -> Observable:
    width, height = size
    shape, dtype, unit = {
        "rgb": ((height, width, 3), "uint8", "1/255"),
        "depth": ((height, width), "float32", "m, 0 too near, inf too far"),
        "segmentation": (
            (height, width),
            "uint8",
            ", ".join(f"{value} {name}" for value, name in enumerate(SEGMENTS)),
        ),
    }[kind]
    spec = ArraySpec(kind=kind, shape=shape, dtype=dtype, unit=unit, frame=frame)
    return Observable(spec, lambda measured: measured.shown.images[key])


def _images(config: ObservationConfig) -> dict[str, Observable]:
    entries = {}
    for name, camera in config.cameras.items():
        frame = f"camera {name}"
        for channel in config.channels:
            entries[f"{name}_{channel}"] = _image(
                channel, config.camera_size, frame, (name, channel)
            )
        K = Pinhole.of(camera, config.camera_size).matrix()
        entries[f"{name}_K"] = _numbers("camera", (3, 3), "pixel", frame, lambda measured, K=K: K)
        entries[f"{name}_X_WC"] = _numbers(
            "camera",
            (3, 4),
            "rotation matrix | m",
            "world: [R_WC | p_WC], x right in the picture, y down, z into it",
            lambda measured, name=name: measured.shown.X_WC[name].GetAsMatrix34(),
        )
    return entries
