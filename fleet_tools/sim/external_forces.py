"""External forces of a scene: pushes on hand or object in the middle of an episode.

A force is constant over whole control steps, so that it follows from the scene and the number of
the step alone, and an episode can be continued from any of its states.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pydrake.multibody.math import SpatialForce
from pydrake.multibody.plant import ExternallyAppliedSpatialForce, MultibodyPlant
from pydrake.multibody.tree import Frame, RigidBody
from pydrake.systems.framework import Context

from fleet_tools.sim.scene import ExternalForce, Scene

PORT = "external_forces"
"""Name of the diagram's input port for them."""


Force = tuple[float, float, float]


class ForcesNow(NamedTuple):
    """External forces in one control step, in the world.

    Attributes:
        hand_N: Force at the origin of the end effector, N.
        object_N_kg: Force on each link of the object, at its centre of mass, N per kg of it.
    """

    hand_N: Force
    object_N_kg: Force


NO_FORCES = ForcesNow((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def control_steps(force: ExternalForce, rate_hz: float) -> range:
    """Returns the control steps, counted from 1, in which a force acts; at least one."""
    first = 1 + round(force.start_s * rate_hz)
    return range(first, first + max(1, round(force.duration_s * rate_hz)))


def forces_in(scene: Scene, step: int, rate_hz: float) -> ForcesNow:
    """Returns the sums of the forces of a scene in a control step, counted from 1.

    Args:
        scene: The scene.
        step: The control step; none acts in step 0.
        rate_hz: The control rate, Hz.
    """
    if not scene.hand_forces and not scene.object_forces:
        return NO_FORCES

    def total(forces: Sequence[tuple[ExternalForce, Force]]) -> Force:
        acting = [force for when, force in forces if step in control_steps(when, rate_hz)]
        x, y, z = (sum(each[k] for each in acting) for k in range(3))
        return x, y, z

    return ForcesNow(
        total([(each, each.force_N) for each in scene.hand_forces]),
        total([(each, each.force_N_per_kg) for each in scene.object_forces]),
    )


def link_forces(links: list[RigidBody], now: ForcesNow, context: Context) -> np.ndarray:
    """Returns the force on each link of the object, (links, 3), N, in the world.

    Args:
        links: The links.
        now: What acts.
        context: Context of the plant, which has their masses.
    """
    masses = [link.get_mass(context) for link in links]
    return np.outer(masses, now.object_N_kg)


def drake_forces(
    plant: MultibodyPlant, hand: Frame, links: list[RigidBody], now: ForcesNow, context: Context
) -> list[ExternallyAppliedSpatialForce]:
    """Returns the forces in Drake's form; empty if there are none.

    Args:
        plant: The plant.
        hand: Frame of the end effector.
        links: Links of the object.
        now: What acts.
        context: Context of the plant.
    """
    applied = []
    if any(now.hand_N):
        p_BE = hand.GetFixedPoseInBodyFrame().translation()
        applied.append(_force(hand.body(), p_BE, np.array(now.hand_N)))
    if any(now.object_N_kg):
        for link, force in zip(links, link_forces(links, now, context), strict=True):
            applied.append(_force(link, link.CalcCenterOfMassInBodyFrame(context), force))
    return applied


def _force(body: RigidBody, p_BQ: np.ndarray, force: np.ndarray) -> ExternallyAppliedSpatialForce:
    applied: Any = ExternallyAppliedSpatialForce()  # its stubs confuse arrays and numbers
    applied.body_index = body.index()
    applied.p_BoBq_B = p_BQ
    applied.F_Bq_W = SpatialForce(np.zeros(3), force)
    return applied
