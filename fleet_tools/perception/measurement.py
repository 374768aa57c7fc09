"""What is measured at one moment, of which observations are made."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pydrake.math import RigidTransform

    from fleet_tools.sim.world_state import WorldState


@dataclass(frozen=True, eq=False)
class Measurement:
    """The state of the world at one moment, and what cameras see of it.

    Attributes:
        state: The privileged state.
        X_WC: Poses of the cameras in the world; empty without images.
        images: By camera and channel, see `fleet_tools.perception.rendering`; empty unless the
            observation mode is "rgbd".
        cloud: See `fleet_tools.perception.point_cloud.stack`, in the frame of the end effector;
            without rows unless the mode is "point_cloud".
    """

    state: "WorldState"
    X_WC: "dict[str, RigidTransform]" = field(default_factory=dict)
    images: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    cloud: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.float32))
