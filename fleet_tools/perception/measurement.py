"""What is measured at one moment, of which observations are made."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pydrake.math import RigidTransform

    from fleet_tools.sim.world_state import WorldState


def _no_points() -> np.ndarray:
    return np.zeros((0, 3))


@dataclass(frozen=True, eq=False)
class Capture:
    """What cameras capture at one moment.

    Attributes:
        X_WC: Poses of the cameras in the world, as calibrated; empty without images.
        images: By camera and channel, see `fleet_tools.perception.rendering`; empty unless the
            observation mode is "rgbd".
        p_W_tool, p_W_object: (n, 3), points of tool and object, m; without rows unless the mode is
            "point_cloud".
    """

    X_WC: "dict[str, RigidTransform]" = field(default_factory=dict)
    images: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    p_W_tool: np.ndarray = field(default_factory=_no_points)
    p_W_object: np.ndarray = field(default_factory=_no_points)


@dataclass(frozen=True, eq=False)
class Measurement:
    """The state of the world at one moment, and what is known of it by cameras.

    Attributes:
        state: The privileged state.
        shown: The capture of which the observation is made: with a delay, that of the step before.
        latest: The capture of this moment.
        cloud: See `fleet_tools.perception.point_cloud.stack`, of what is shown, in the present
            frame of the end effector; without rows unless the mode is "point_cloud".
    """

    state: "WorldState"
    shown: Capture = field(default_factory=Capture)
    latest: Capture = field(default_factory=Capture)
    cloud: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.float32))
