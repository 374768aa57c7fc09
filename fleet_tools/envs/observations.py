"""Entries of observations: the specification of each, and its value from a measurement.

Which of them an observation has is said by `fleet_tools.envs.observation_modes`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from fleet_tools.config.randomization import PLACE
from fleet_tools.config.tasks import ObservedKeypoints
from fleet_tools.envs.array_spec import ArraySpec, Kind, masked_keypoints
from fleet_tools.errors import ConfigError
from fleet_tools.perception.camera_view import SEGMENTS, Channel, Pinhole
from fleet_tools.perception.measurement import Measurement, ObservationConfig

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


def observation_space(features: Mapping[str, ArraySpec]) -> spaces.Dict:
    """Returns the space of observations with these entries."""
    return spaces.Dict({name: spec.space for name, spec in features.items()})


def observe(observables: Mapping[str, Observable], measurement: Measurement) -> Observation:
    """Returns the observation of a measurement; the two share no memory.

    Raises:
        ConfigError: An observation mode of a user's own gives an array of another shape than said.
    """
    observation = {}
    for name, each in observables.items():
        array = np.array(each.read(measurement), dtype=each.spec.dtype)
        if array.shape != each.spec.shape:
            raise ConfigError(
                f"The observation {name!r} has the shape {array.shape}; expected "
                f"{each.spec.shape}, as in its ArraySpec."
            )
        observation[name] = array
    return observation


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


def proprioception(num_joints: int) -> dict[str, Observable]:
    """Returns the robot's own senses.

    Args:
        num_joints: Number of its joints.
    """
    joints = (num_joints,)
    return {
        "joint_position": _numbers("state", joints, "rad", None, lambda measured: measured.state.q),
        "joint_velocity": _numbers(
            "state", joints, "rad/s", None, lambda measured: measured.state.v
        ),
        "joint_external_torque": _numbers(  # on the joints, from contact
            "state", joints, "N m", None, lambda measured: measured.state.tau_external
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


def own_keypoints(keypoints: ObservedKeypoints, config: ObservationConfig) -> dict[str, Observable]:
    """Returns the keypoints of tool and object; a marked place is one more of the object's."""
    place = (PLACE,) if config.has_place else ()
    return {
        "tool_keypoints": _points(keypoints.tool),
        "object_keypoints": _points((*keypoints.object, *place), of_tool=False),
    }


def _points(names: tuple[str, ...], *, of_tool: bool = True) -> Observable:
    """Returns points of the tool, or of the object and the table, in the end effector's frame."""

    def read(measurement: Measurement) -> np.ndarray:
        state = measurement.state
        p_W = state.p_W_tool if of_tool else {**state.p_W_object, PLACE: state.p_W_place}
        p_E = state.in_end_effector({name: p_W[name] for name in names})
        return np.array([p_E[name] for name in names])

    return _numbers("keypoints", (len(names), 3), "m", "end effector", read, names)


def padded_keypoints(
    keypoints: ObservedKeypoints, config: ObservationConfig
) -> dict[str, Observable]:
    """Returns the keypoints of tool and object in a layout common to all tasks.

    Raises:
        ConfigError: A task has too many keypoints for it.
    """
    number = config.keypoint_rows

    def observable(name: str, own: Observable) -> Observable:
        count = len(own.spec.entries)
        if count > number:
            raise ConfigError(
                f'obs_mode="multitask_state" has {number} rows, but the task has {count} {name}. '
                f"Set keypoint_rows={count}, or more, in all tasks that share a policy."
            )

        def read(measurement: Measurement) -> np.ndarray:
            rows = np.zeros((number, 4))
            rows[:count, :3], rows[:count, 3] = own.read(measurement), 1
            return rows

        return Observable(masked_keypoints(number), read)

    own = own_keypoints(keypoints, config)
    return {name: observable(name, each) for name, each in own.items()}


def point_cloud(keypoints: ObservedKeypoints, config: ObservationConfig) -> dict[str, Observable]:
    """Returns the fused point cloud of tool and object."""
    return {
        "point_cloud": _numbers(
            "points",
            (sum(config.cloud_size), 4),
            "m, mask: 1 tool, -1 object, 0 out of view",
            "end effector",
            lambda measured: measured.seen_cloud(),
        )
    }


def _image(channel: Channel, size: tuple[int, int], camera: str) -> Observable:
    width, height = size
    kinds = {
        "rgb": ((height, width, 3), "uint8", "1/255"),
        "depth": ((height, width), "float32", "m, 0 too near, inf too far"),
        "segmentation": (
            (height, width),
            "uint8",
            ", ".join(f"{value} {name}" for value, name in enumerate(SEGMENTS)),
        ),
    }
    shape, dtype, unit = kinds[channel]
    spec = ArraySpec(kind=channel, shape=shape, dtype=dtype, unit=unit, frame=f"camera {camera}")
    return Observable(spec, lambda measured: measured.seen().images[camera, channel])


def images(keypoints: ObservedKeypoints, config: ObservationConfig) -> dict[str, Observable]:
    """Returns the images of all cameras, their intrinsics and poses; and the marked place."""
    entries = {PLACE: _points((PLACE,), of_tool=False)} if config.has_place else {}
    for name, camera in config.cameras.items():
        for channel in config.channels:
            entries[f"{name}_{channel}"] = _image(channel, config.camera_size, name)
        K = Pinhole.of(camera, config.camera_size).matrix()
        entries[f"{name}_K"] = _numbers(
            "camera", (3, 3), "pixel", f"camera {name}", lambda measured, K=K: K
        )
        entries[f"{name}_X_WC"] = _numbers(
            "camera",
            (3, 4),
            "rotation matrix | m",
            "world: [R_WC | p_WC], x right in the picture, y down, z into it",
            lambda measured, name=name: measured.seen().X_WC[name].GetAsMatrix34(),
        )
    return entries
