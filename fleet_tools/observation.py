"""The layout of observations: the robot's own senses, and the keypoints of tool and object."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from fleet_tools.tasks import ObservedKeypoints

if TYPE_CHECKING:
    from fleet_tools.state import WorldState

OBS_MODES = ("state",)


@dataclass(frozen=True)
class Sense:
    """An entry of the observation.

    Attributes:
        shape: As a function of the task's keypoints.
        unit, frame: Of its numbers; no frame where they have none.
        read: Takes it from the world's state.
    """

    shape: Callable[[ObservedKeypoints], tuple[int, ...]]
    unit: str
    frame: str | None
    read: Callable[["WorldState", ObservedKeypoints], np.ndarray]


LAYOUT = {
    "joint_position": Sense(lambda k: (7,), "rad", None, lambda state, k: state.q),
    "joint_velocity": Sense(lambda k: (7,), "rad/s", None, lambda state, k: state.v),
    "joint_external_torque": Sense(  # that contact exerts on the joints
        lambda k: (7,), "N m", None, lambda state, k: state.tau_external
    ),
    "end_effector_pose": Sense(
        lambda k: (3, 4),
        "rotation matrix | m",
        "world: [R_WE | p_WE]",
        lambda state, k: state.X_WE.GetAsMatrix34(),
    ),
    "end_effector_wrench": Sense(  # that contact exerts on the end effector
        lambda k: (6,),
        "N m, N",
        "end effector: [moment, force] at its origin",
        lambda state, k: state.F_E,
    ),
    "tool_keypoints": Sense(  # in the task file's order
        lambda k: (len(k.tool), 3),
        "m",
        "end effector",
        lambda state, k: _in_end_effector(state, state.p_W_tool, k.tool),
    ),
    "object_keypoints": Sense(
        lambda k: (len(k.object), 3),
        "m",
        "end effector",
        lambda state, k: _in_end_effector(state, state.p_W_object, k.object),
    ),
}


def observation_space(keypoints: ObservedKeypoints) -> spaces.Dict:
    """Returns the space of `observe`."""
    return spaces.Dict(
        {
            name: spaces.Box(-np.inf, np.inf, sense.shape(keypoints), np.float32)
            for name, sense in LAYOUT.items()
        }
    )


def observe(state: "WorldState", keypoints: ObservedKeypoints) -> dict[str, np.ndarray]:
    """Returns the observation of a state: what `LAYOUT` says, all float32."""
    return {
        name: np.array(sense.read(state, keypoints), dtype=np.float32)
        for name, sense in LAYOUT.items()
    }


def _in_end_effector(
    state: "WorldState", p_W: dict[str, np.ndarray], names: tuple[str, ...]
) -> np.ndarray:
    p_E = state.in_end_effector(p_W)
    return np.array([p_E[name] for name in names])
