"""The object that is in use: where its points and joints are, what touched it, and who moved it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, ModelInstanceIndex
from pydrake.systems.framework import Context

from fleet_tools.sim.catalog import Model
from fleet_tools.sim.contacts import JointContact
from fleet_tools.sim.motion_tables import PartMotion
from fleet_tools.sim.world import World

Points = dict[str, tuple[Frame, np.ndarray]]
"""Frame of a link and position in it, (3,), m, by the name of a keypoint."""


class ObjectInUse:
    """Reads an object of a world, and its meters.

    Args:
        world: The world in whose role of the object it is.
        model: Its model.
        root: Context of the diagram.

    Attributes:
        world, model: As given.
        points: Its keypoints.
        joints: Its joints with one degree of freedom.
        links: Its links.
        contact: Contact forces and impulses on the joints.
    """

    def __init__(self, world: World, model: Model, root: Context) -> None:
        plant = world.plant
        self.world, self.model = world, model
        self.points = attached_points(plant, world.object, model)
        self.joints = [
            joint
            for joint in map(plant.get_joint, plant.GetJointIndices(world.object))
            if joint.num_positions() == 1
        ]
        self.links = list(world.bodies(world.object))
        self.contact = JointContact(plant, world.object, self.joints, world.impulse_meter, root)
        self._part_motion = None
        if world.part_motion is not None:
            self._part_motion = (
                world.part_motion,
                world.part_motion.GetMyMutableContextFromRoot(root),
            )

    def link_motions(self, context: Context) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns position and velocity of each link's centre of mass, (3,) each, m and m/s, in W.

        Args:
            context: Context of the plant.
        """
        return {
            body.name(): (
                body.EvalPoseInWorld(context) @ body.CalcCenterOfMassInBodyFrame(context),
                body.CalcCenterOfMassTranslationalVelocityInWorld(context),
            )
            for body in self.links
        }

    def begin(self) -> None:
        """Forgets who touched and moved it so far, as at the start of an episode."""
        self.contact.set_impulse(0.0)
        self.set_attribution(np.zeros_like(self.attribution()))

    def motion_by_part(self) -> dict[str, PartMotion]:
        """Returns its motion since it is in use by the part of the tool that caused it."""
        if self._part_motion is None:
            return {}
        meter, context = self._part_motion
        return meter.motion(context)

    def attribution(self) -> np.ndarray:
        """Returns what is known of who moved it, see `Snapshot`."""
        if self._part_motion is None:
            return np.zeros(0)
        _, context = self._part_motion
        return context.get_discrete_state_vector().CopyToVector()

    def set_attribution(self, values: np.ndarray) -> None:
        """Returns to what `attribution` returned."""
        if self._part_motion is not None:
            _, context = self._part_motion
            context.SetDiscreteState(values)

    @contextmanager
    def unattributed(self) -> Iterator[None]:
        """Attributes to nobody how it is moved inside of the `with` statement."""
        if self._part_motion is None:
            yield
            return
        meter, context = self._part_motion
        with meter.unattributed(context):
            yield

    def set_external_forces(self, forces: np.ndarray) -> None:
        """Says what else pushes it from now on, (links, 3), N, in the world."""
        if self._part_motion is not None:
            meter, context = self._part_motion
            meter.set_external_forces(context, forces)


def attached_points(plant: MultibodyPlant, instance: ModelInstanceIndex, model: Model) -> Points:
    """Returns the keypoints of a model in a plant."""
    return {
        name: (
            plant.GetBodyByName(keypoint.link, instance).body_frame(),
            np.array(keypoint.position),
        )
        for name, keypoint in model.labels.keypoints.items()
    }
