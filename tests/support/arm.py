"""A model of the arm, and random states and payloads of it."""

import numpy as np
from pydrake.math import RotationMatrix
from pydrake.multibody.tree import SpatialInertia, UnitInertia

from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.arm_model import ArmModel

ROBOT = load_robot()
ARM = ArmModel(ROBOT)


def random_configuration(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions and velocities of the arm that are not near a singularity."""
    while True:
        q, v = (
            rng.uniform(ARM.limits.lower, ARM.limits.upper),
            rng.uniform(-1.5, 1.5, ARM.num_joints),
        )
        if np.linalg.cond(ARM.dynamics(q, v)[0].J) < 50:
            return q, v


def random_payload(rng: np.random.Generator) -> SpatialInertia:
    """Returns the spatial inertia, about E, of a body with the central inertia of a solid box."""
    box = UnitInertia.SolidBox(*rng.uniform(0.02, 0.4, 3))
    R = RotationMatrix.MakeXRotation(rng.uniform(-3, 3))
    inertia = SpatialInertia.MakeFromCentralInertia(
        rng.uniform(0.1, 2.0), rng.uniform(-0.2, 0.2, 3), (rng.uniform(0.1, 2.0) * box)
    )
    return inertia.ReExpress(R)
