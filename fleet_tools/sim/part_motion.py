"""The motion of the object that came through contact with named parts of the tool.

A part is what lies within a distance of a line through some of the tool's keypoints, perhaps on one
side of the tool only (`fleet_tools.config.tasks.ToolPart`). How motion is attributed:
`fleet_tools.sim.attribution`.
"""

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.geometry import GeometryId
from pydrake.math import RigidTransform
from pydrake.multibody.math import SpatialVelocity
from pydrake.multibody.plant import ContactResults, MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex
from pydrake.systems.framework import (
    BasicVector,
    Context,
    DiagramBuilder,
    DiscreteValues,
    LeafSystem,
)

from fleet_tools.config.tasks import ToolPart
from fleet_tools.robot.python_systems import release_builder
from fleet_tools.sim.attribution import (
    add_motion,
    distance_behind,
    distance_to_polyline,
    divide_work,
)
from fleet_tools.sim.catalog import Keypoint, Model
from fleet_tools.sim.contacts import contact_wrenches
from fleet_tools.sim.object_motion import FIXED, ObjectMotion, PartMotion


class PartMotionMeter(LeafSystem):
    """Attributes the object's motion to parts of the tool, in every simulation step.

    Its discrete state is updated together with the plant's, with the contact forces that the plant
    applies in that step.

    Input ports: the plant's `contact_results`, `body_poses`, `body_velocities`, the generalized
    contact forces of the arm, `arm_contact`, and the state of the object, `object_state`.
    Output port: `motion`, the attributed motion at present, including the step that ends there.

    Args:
        plant: The finalized plant.
        arm: Model instance of the arm.
        tool, object: Model instance and model of each.
        parts: Parts of the tool by name.
    """

    def __init__(
        self,
        plant: MultibodyPlant,
        arm: ModelInstanceIndex,
        tool: tuple[ModelInstanceIndex, Model],
        object: tuple[ModelInstanceIndex, Model],
        parts: Mapping[str, ToolPart],
    ) -> None:
        super().__init__()
        self._time_step = plant.time_step()
        self._parts = {name: _PartRegion.of(part, plant, *tool) for name, part in parts.items()}
        self._object = ObjectMotion(plant, *object)
        self._robot_shapes = set(_shapes(plant, arm))
        self._tool_shapes = set(_shapes(plant, tool[0]))
        self._link_of_shape = _shapes(plant, object[0])

        num_parts, links = len(parts), len(self._object.bodies)
        self._shapes = (
            (num_parts + 1, links, 6),  # contact wrenches in the last step
            (num_parts, self._object.num_mechanisms),  # shares
            (num_parts, len(self._object.coordinate_mechanism)),  # motion
        )
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        self.DeclareDiscreteState(int(self._ends[-1]))

        # A Python system that keeps its ports, or a bound method, is never freed; so it keeps
        # their indices.
        self._inputs = {
            name: int(port.get_index())
            for name, port in {
                "contact_results": self.DeclareAbstractInputPort(
                    "contact_results", AbstractValue.Make(ContactResults())
                ),
                "body_poses": self.DeclareAbstractInputPort(
                    "body_poses", AbstractValue.Make([RigidTransform()])
                ),
                "body_velocities": self.DeclareAbstractInputPort(
                    "body_velocities", AbstractValue.Make([SpatialVelocity()])
                ),
                "arm_contact": self.DeclareVectorInputPort(
                    "arm_contact", plant.num_velocities(arm)
                ),
                "object_state": self.DeclareVectorInputPort(
                    "object_state", plant.num_multibody_states(object[0])
                ),
            }.items()
        }
        this = weakref.ref(self)

        def update(context: Context, values: DiscreteValues) -> None:
            system = this()
            assert system is not None  # Drake calls it only while the diagram lives
            system._update(context, values)

        def calc(context: Context, output: BasicVector) -> None:
            system = this()
            assert system is not None
            output.SetFromVector(system._present(context)[2].ravel())

        self._callback = update  # kept alive here, for `release_builder`
        self.DeclarePeriodicDiscreteUpdateEvent(self._time_step, 0.0, update)
        self.DeclareVectorOutputPort("motion", int(np.prod(self._shapes[2])), calc)

    def motion(self, context: Context) -> dict[str, PartMotion]:
        """Returns the present motion by the name of the part.

        Args:
            context: Context of this system.
        """
        values = self.get_output_port().Eval(context).reshape(self._shapes[2])
        return {
            name: self._object.named(row) for name, row in zip(self._parts, values, strict=True)
        }

    def _update(self, context: Context, values: DiscreteValues) -> None:
        arm_in_contact = self.EvalVectorInput(context, self._inputs["arm_contact"]).value().any()
        if not arm_in_contact and not context.get_discrete_state_vector().value().any():
            return  # nothing has been touched yet
        force, share, motion = self._present(context)
        force[:] = 0.0
        if arm_in_contact or share.any():
            self._find_forces(context, share, force)
        values.get_mutable_vector().SetFromVector(
            np.concatenate([force.ravel(), share.ravel(), motion.ravel()])
        )

    def _present(self, context: Context) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns forces of the step that ends at present, and shares and motion including it."""
        state = context.get_discrete_state_vector().CopyToVector()
        force, share, motion = (
            part.reshape(shape)
            for part, shape in zip(np.split(state, self._ends[:-1]), self._shapes, strict=True)
        )
        if force.any() or share.any():
            X_WB = self._eval(context, "body_poses")
            V_WB = self._eval(context, "body_velocities")
            x = self.EvalVectorInput(context, self._inputs["object_state"]).value()
            V_WL, rate = self._object.rates(X_WB, V_WB, x)
            divide_work(force, V_WL, self._object.link_mechanism, share)
            add_motion(share, self._object.coordinate_mechanism, rate, self._time_step, motion)
        return force, share, motion

    def _find_forces(self, context: Context, share: np.ndarray, force: np.ndarray) -> None:
        """Adds the present contact wrenches on the links to `force`."""
        X_WB = self._eval(context, "body_poses")
        links, mechanism = self._link_of_shape, self._object.link_mechanism
        for shapes, p_WC, F_C in contact_wrenches(self._eval(context, "contact_results")):
            for on, by, sign in ((shapes[0], shapes[1], 1.0), (shapes[1], shapes[0], -1.0)):
                link = links.get(on)
                if link is None or mechanism[link] == FIXED:
                    continue
                p_CL = X_WB[self._object.bodies[link]].translation() - p_WC
                F = sign * F_C.Shift(p_CL).get_coeffs()
                if by in self._tool_shapes:
                    force[self._part_at(p_WC, X_WB), link] += F
                elif by in self._robot_shapes:
                    force[-1, link] += F
                elif by in links and mechanism[links[by]] not in (FIXED, mechanism[link]):
                    shares = share[:, mechanism[links[by]]]  # of what moved the other link
                    force[:-1, link] += shares[:, None] * F
                    force[-1, link] += (1.0 - shares.sum()) * F

    def _part_at(self, p_WC: np.ndarray, X_WB: list[RigidTransform]) -> int:
        """Returns the index of the part at a point of the tool; -1 for none."""
        for index, part in enumerate(self._parts.values()):
            if part.contains(p_WC, X_WB):
                return index
        return -1

    def _eval(self, context: Context, port: str):
        return self.EvalAbstractInput(context, self._inputs[port]).get_value()


@dataclass(frozen=True, eq=False)
class _PartRegion:
    """A part of the tool.

    Attributes:
        corners: Body index and position in it of each corner of the part's line.
        within_m: Distance from the line.
        axis: Likewise the start and the end of the axis of `ToolPart.facing`; empty without it.
        depth_m: Largest distance behind the end of the axis.
    """

    corners: tuple[tuple[int, np.ndarray], ...]
    within_m: float
    axis: tuple[tuple[int, np.ndarray], ...]
    depth_m: float

    @classmethod
    def of(
        cls, part: ToolPart, plant: MultibodyPlant, instance: ModelInstanceIndex, tool: Model
    ) -> "_PartRegion":
        def corner(keypoint: Keypoint) -> tuple[int, np.ndarray]:
            body = plant.GetBodyByName(keypoint.link, instance)
            return int(body.index()), np.array(keypoint.position)

        def corners(names: Iterable[str]) -> tuple[tuple[int, np.ndarray], ...]:
            return tuple(corner(tool.keypoint(name)) for name in names)

        axis, depth_m = (part.facing.axis, part.facing.depth_m) if part.facing else ((), 0.0)
        return cls(corners(part.keypoints), part.within_m, corners(axis), depth_m)

    def contains(self, p_WC: np.ndarray, X_WB: list[RigidTransform]) -> bool:
        points = np.array([X_WB[body] @ p_BK for body, p_BK in self.corners])
        if distance_to_polyline(p_WC, points) > self.within_m:
            return False
        axis = [X_WB[body] @ p_BK for body, p_BK in self.axis]
        return not axis or distance_behind(p_WC, axis[0], axis[1]) <= self.depth_m


def _shapes(plant: MultibodyPlant, instance: ModelInstanceIndex) -> dict[GeometryId, int]:
    """Returns the collision shapes of a model, each with the index of its link in the model."""
    return {
        shape: link
        for link, body in enumerate(plant.GetBodyIndices(instance))
        for shape in plant.GetCollisionGeometriesForBody(plant.get_body(body))
    }


def add_part_motion_meter(
    builder: DiagramBuilder,
    plant: MultibodyPlant,
    arm: ModelInstanceIndex,
    tool: tuple[ModelInstanceIndex, Model],
    object: tuple[ModelInstanceIndex, Model],
    parts: Mapping[str, ToolPart],
) -> PartMotionMeter | None:
    """Adds a `PartMotionMeter` to a diagram; its arguments are described there.

    Returns:
        None if there are no parts.
    """
    if not parts:
        return None
    meter = builder.AddSystem(PartMotionMeter(plant, arm, tool, object, parts))
    for name, port in (
        ("contact_results", plant.get_contact_results_output_port()),
        ("body_poses", plant.get_body_poses_output_port()),
        ("body_velocities", plant.get_body_spatial_velocities_output_port()),
        ("arm_contact", plant.get_generalized_contact_forces_output_port(arm)),
        ("object_state", plant.get_state_output_port(object[0])),
    ):
        builder.Connect(port, meter.GetInputPort(name))
    release_builder(meter)
    return meter
