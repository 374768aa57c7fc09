"""The layout of observations: the robot's own senses, and what the mode adds to them.

Every mode has the senses of the robot's own body. `state` adds the keypoints of tool and object,
`multitask_state` the same in a layout that all tasks share, `point_cloud` their fused point cloud,
`rgbd` the pictures of all cameras.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from fleet_tools.config.tasks import ObservedKeypoints
from fleet_tools.errors import ConfigError
from fleet_tools.perception.observation_config import Vision
from fleet_tools.perception.segmentation import SEGMENTS

if TYPE_CHECKING:
    from pydrake.math import RigidTransform

    from fleet_tools.perception.rig import View
    from fleet_tools.sim.world_state import WorldState


MULTITASK_ROWS = 8
"""Of each part's keypoints in the layout that all tasks share."""


@dataclass(frozen=True, eq=False)
class Moment:
    """What there is to observe at one moment.

    Attributes:
        state: The privileged state.
        X_WC: Poses of the cameras in the world, where the mode has images.
        views: What they see, with `rgbd`.
        cloud: Points in the end effector, with `point_cloud`; see `point_cloud.stack`.
    """

    state: "WorldState"
    X_WC: dict[str, "RigidTransform"] = field(default_factory=dict)
    views: dict[str, "View"] = field(default_factory=dict)
    cloud: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Sense:
    """An entry of the observation.

    Attributes:
        space: Its shape, dtype and limits.
        unit, frame: Of its numbers; no frame where they have none.
        read: Takes it from a moment.
        entries: Names along the first axis, where they have names.
    """

    space: spaces.Box
    unit: str
    frame: str | None
    read: Callable[[Moment], np.ndarray]
    entries: tuple[str, ...] = ()


def layout(keypoints: ObservedKeypoints, vision: Vision) -> dict[str, Sense]:
    """Returns the entries of an environment's observations.

    Raises:
        ConfigError: A task has too many keypoints for the layout that all tasks share.
    """
    match vision.obs_mode:
        case "state":
            return _BODY | _keypoints(keypoints)
        case "multitask_state":
            return _BODY | _padded(_keypoints(keypoints))
        case "point_cloud":
            return _BODY | _point_cloud(vision)
    return _BODY | _images(vision)


def observation_space(senses: dict[str, Sense]) -> spaces.Dict:
    """Returns the space of `observe`."""
    return spaces.Dict({name: sense.space for name, sense in senses.items()})


def observe(senses: dict[str, Sense], moment: Moment) -> dict[str, np.ndarray]:
    """Returns the observation of a moment; it shares no memory with it."""
    return {
        name: np.array(sense.read(moment), dtype=sense.space.dtype)
        for name, sense in senses.items()
    }


def _box(*shape: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


_BODY = {
    "joint_position": Sense(_box(7), "rad", None, lambda moment: moment.state.q),
    "joint_velocity": Sense(_box(7), "rad/s", None, lambda moment: moment.state.v),
    "joint_external_torque": Sense(  # that contact exerts on the joints
        _box(7), "N m", None, lambda moment: moment.state.tau_external
    ),
    "end_effector_pose": Sense(
        _box(3, 4),
        "rotation matrix | m",
        "world: [R_WE | p_WE]",
        lambda moment: moment.state.X_WE.GetAsMatrix34(),
    ),
    "end_effector_wrench": Sense(  # that contact exerts on the end effector
        _box(6),
        "N m, N",
        "end effector: [moment, force] at its origin",
        lambda moment: moment.state.F_E,
    ),
}


def _keypoints(keypoints: ObservedKeypoints) -> dict[str, Sense]:
    def sense(part: str, names: tuple[str, ...]) -> Sense:
        def read(moment: Moment) -> np.ndarray:
            p_E = moment.state.in_end_effector(getattr(moment.state, f"p_W_{part}"))
            return np.array([p_E[name] for name in names])

        return Sense(_box(len(names), 3), "m", "end effector", read, names)

    return {
        "tool_keypoints": sense("tool", keypoints.tool),
        "object_keypoints": sense("object", keypoints.object),
    }


def _padded(keypoints: dict[str, Sense]) -> dict[str, Sense]:
    def sense(name: str, own: Sense) -> Sense:
        count = len(own.entries)
        if count > MULTITASK_ROWS:
            raise ConfigError(
                f'obs_mode="multitask_state" holds {MULTITASK_ROWS} {name}, and the task observes '
                f'{count}. Observe fewer, or use "state".'
            )

        def read(moment: Moment) -> np.ndarray:
            rows = np.zeros((MULTITASK_ROWS, 4))
            rows[:count, :3], rows[:count, 3] = own.read(moment), 1
            return rows

        return Sense(_box(MULTITASK_ROWS, 4), "m, mask: 1 there, 0 not", own.frame, read)

    return {name: sense(name, own) for name, own in keypoints.items()}


def _point_cloud(vision: Vision) -> dict[str, Sense]:
    return {
        "point_cloud": Sense(
            _box(sum(vision.cloud_size), 4),
            "m, mask: 1 tool, -1 object, 0 out of view",
            "end effector",
            lambda moment: moment.cloud,
        )
    }


def picture_space(channel: str, height: int, width: int) -> spaces.Box:
    """Returns the space of a camera's pictures in one of the `CHANNELS`."""
    match channel:
        case "rgb":
            return spaces.Box(0, 255, (height, width, 3), np.uint8)
        case "depth":
            return spaces.Box(0, np.inf, (height, width), np.float32)
    return spaces.Box(0, len(SEGMENTS) - 1, (height, width), np.uint8)


_CHANNEL_UNITS = {
    "rgb": "1/255",
    "depth": "m, 0 too near, inf too far",
    "segmentation": ", ".join(f"{value} {name}" for value, name in enumerate(SEGMENTS)),
}


def _images(vision: Vision) -> dict[str, Sense]:
    width, height = vision.camera_size
    senses = {}
    for name, camera in vision.cameras.items():
        frame = f"camera {name}"
        for channel in vision.channels:
            read = lambda moment, n=name, c=channel: getattr(moment.views[n], c)  # noqa: E731
            space = picture_space(channel, height, width)
            senses[f"{name}_{channel}"] = Sense(space, _CHANNEL_UNITS[channel], frame, read)
        K = camera.pinhole(vision.camera_size).matrix()
        senses[f"{name}_K"] = Sense(_box(3, 3), "pixel", frame, lambda moment, K=K: K)
        senses[f"{name}_X_WC"] = Sense(
            _box(3, 4),
            "rotation matrix | m",
            "world: [R_WC | p_WC], x right in the picture, y down, z into it",
            lambda moment, n=name: moment.X_WC[n].GetAsMatrix34(),
        )
    return senses
