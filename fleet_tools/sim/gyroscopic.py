"""The Drake system that makes the discrete step of free bodies conserve their momentum."""

import weakref

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import RigidBody
from pydrake.systems.framework import BasicVector, Context, DiagramBuilder, LeafSystem

from fleet_tools.robot.python_systems import release_cycles
from fleet_tools.sim.free_rotation import INERTIA_SIZE, Bodies, conserving_forces
from fleet_tools.utils.straight_line import pack

_LARGEST_ENTRY = 0.25, 2.0
"""Range of a quaternion's largest entry within which it is left as it is."""


class GyroscopicCorrection(LeafSystem):
    """Forces on free bodies, with which Drake's step conserves momentum (`free_rotation`).

    Its output is a function of the plant's state and of the bodies' inertias, which are parameters
    of its context.

    Input port: the state of the plant.
    Output port: generalized forces for all velocities of the plant.

    Args:
        plant: The plant.
        bodies: Bodies of a floating base, each with the bodies that are welded to it; none has
            other joints.
    """

    def __init__(self, plant: MultibodyPlant, bodies: list[RigidBody]) -> None:
        super().__init__()
        self._welded = [[b.index() for b in plant.GetBodiesWeldedTo(body)] for body in bodies]
        self._bodies = [body.index() for body in bodies]
        packed = pack(
            Bodies(
                q_starts=tuple(int(body.floating_positions_start()) for body in bodies),
                v_starts=tuple(int(body.floating_velocities_start_in_v()) for body in bodies),
                size=plant.num_velocities(),
                h=plant.time_step(),
            )
        )
        self.DeclareVectorInputPort("state", plant.num_multibody_states())
        inertias = self._inertias(plant, plant.CreateDefaultContext())
        self.DeclareNumericParameter(BasicVector(inertias.ravel()))
        this = weakref.ref(self)  # a Python system that keeps a bound method is never freed

        def calc(context: Context, output: BasicVector) -> None:
            system = this()
            assert system is not None  # Drake calls it only while the diagram lives
            x = system.EvalVectorInput(context, 0).value()
            inertias = context.get_numeric_parameter(0).value().reshape(-1, INERTIA_SIZE)
            output.SetFromVector(conserving_forces(x, inertias, packed))

        self.DeclareVectorOutputPort("generalized_force", plant.num_velocities(), calc)

    def read_inertias(self, plant: MultibodyPlant, root: Context) -> None:
        """Takes over the present inertias of the bodies.

        Args:
            plant: The plant.
            root: Context of the diagram of both.
        """
        inertias = self._inertias(plant, plant.GetMyContextFromRoot(root))
        parameter = self.GetMyMutableContextFromRoot(root).get_mutable_numeric_parameter(0)
        parameter.SetFromVector(inertias.ravel())

    def _inertias(self, plant: MultibodyPlant, context: Context) -> np.ndarray:
        """Returns the inertia of each body, (n, 13), see `free_rotation.INERTIA_SIZE`."""
        rows = []
        for index, welded in zip(self._bodies, self._welded, strict=True):
            frame = plant.get_body(index).body_frame()
            M_BBo = plant.CalcSpatialInertia(context, frame, welded)
            G_BBcm = M_BBo.Shift(M_BBo.get_com()).get_unit_inertia().CopyToFullMatrix3()
            rows.append(np.r_[M_BBo.get_mass(), M_BBo.get_com(), G_BBcm.ravel()])
        return np.array(rows)


def add_gyroscopic_correction(
    builder: DiagramBuilder, plant: MultibodyPlant
) -> GyroscopicCorrection | None:
    """Adds the correction for all free bodies of a plant.

    A floating base that carries joints is left as it is: its momentum is not its own.

    Returns:
        None if there are none.
    """
    bodies = _rigid_free_bodies(plant)
    if not bodies:
        return None
    correction = builder.AddSystem(GyroscopicCorrection(plant, bodies))
    builder.Connect(plant.get_state_output_port(), correction.get_input_port())
    builder.Connect(correction.get_output_port(), plant.get_applied_generalized_force_input_port())
    release_cycles(correction)
    return correction


def normalize_quaternions(plant: MultibodyPlant, context: Context) -> None:
    """Gives quaternions that have become long or short the length 1; the poses are the same.

    A step of Drake multiplies the length by (1 + (h w/2)^2)^(1/2); it would overflow within an
    episode of a fast spin.
    """
    for index in plant.GetFloatingBaseBodies():
        body = plant.get_body(index)
        start = body.floating_positions_start()
        largest = np.abs(plant.GetPositions(context)[start : start + 4]).max()  # 1/2 to 1 if unit
        if not _LARGEST_ENTRY[0] <= largest <= _LARGEST_ENTRY[1]:
            plant.SetFreeBodyPose(context, body, body.EvalPoseInWorld(context))


def _rigid_free_bodies(plant: MultibodyPlant) -> list[RigidBody]:
    """Returns the bodies of floating bases that carry nothing, or only what is welded to them."""
    joints = map(plant.get_joint, plant.GetJointIndices())
    bases = [joint for joint in joints if joint.child_body().is_floating_base_body()]
    return [
        base.child_body()
        for base in bases
        if set(plant.GetBodiesKinematicallyAffectedBy([base.index()]))
        == {body.index() for body in plant.GetBodiesWeldedTo(base.child_body())}
    ]
