"""Objects and boxes that fly and fall, with the correction of their step and without."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np
    from pydrake.math import RigidTransform
    from pydrake.multibody.plant import MultibodyPlant
    from pydrake.multibody.tree import RigidBody
    from pydrake.systems.analysis import Simulator
    from pydrake.systems.framework import Context

_SHAPES_M = {"rod of 20 to 1": (0.20, 0.01, 0.01), "thin plate": (0.20, 0.20, 0.002)}
"""Edges of boxes, which fly beside the package's objects."""
_DENSITY = 1000.0
G = 9.81
HIGH = 1000.0
"""Height at which bodies fly, m."""


class Bench:
    """A table, an object high above it, and the correction of the step of its first body.

    Args:
        name: Name of the object.
        add_body: Adds the object to a plant, and returns its first body.

    Attributes:
        name: Name of the object.
        has_shape: Whether it touches the table.
    """

    def __init__(self, name: str, add_body: "Callable[[MultibodyPlant], RigidBody]") -> None:
        from pydrake.geometry import (
            AddContactMaterial,
            AddRigidHydroelasticProperties,
            Box,
            ProximityProperties,
        )
        from pydrake.math import RigidTransform
        from pydrake.multibody.plant import (
            AddMultibodyPlant,
            CoulombFriction,
            MultibodyPlantConfig,
        )
        from pydrake.systems.framework import DiagramBuilder

        from fleet_tools.config.control import TIME_STEP
        from fleet_tools.sim.free_rotation import add_gyroscopic_correction
        from fleet_tools.sim.world import CONTACT_APPROXIMATION, TABLE_FRICTION

        builder = DiagramBuilder()
        config = MultibodyPlantConfig(
            time_step=TIME_STEP, discrete_contact_approximation=CONTACT_APPROXIMATION
        )
        self.plant, _ = AddMultibodyPlant(config, builder)
        properties = ProximityProperties()
        AddRigidHydroelasticProperties(resolution_hint=4.0, properties=properties)
        friction = CoulombFriction(TABLE_FRICTION, TABLE_FRICTION)
        AddContactMaterial(friction=friction, properties=properties)
        table = self.plant.world_body()
        below = RigidTransform([0.0, 0.0, -0.5])
        self.plant.RegisterCollisionGeometry(table, below, Box(4, 4, 1), "table", properties)
        self.body = add_body(self.plant)
        self.plant.Finalize()
        self.name = name
        self.has_shape = bool(self.plant.GetCollisionGeometriesForBody(self.body))
        self._correction = add_gyroscopic_correction(builder, self.plant)
        self.diagram = builder.Build()

    def start(
        self, X_WB: "RigidTransform", w: "np.ndarray", corrected: bool
    ) -> "tuple[Simulator, Context]":
        """Returns a simulator in which the body spins at a pose, and the plant's context.

        Args:
            X_WB: Pose of the body.
            w: (3,), angular velocity, rad/s.
            corrected: Whether the correction is active.
        """
        import numpy as np
        from pydrake.math import RigidTransform
        from pydrake.multibody.math import SpatialVelocity
        from pydrake.systems.analysis import Simulator

        simulator = Simulator(self.diagram)
        root = simulator.get_mutable_context()
        context = self.plant.GetMyMutableContextFromRoot(root)
        for k, index in enumerate(self.plant.GetFloatingBaseBodies()):  # others fall far away
            away = RigidTransform([100.0 + k, 0.0, HIGH])
            self.plant.SetFreeBodyPose(context, self.plant.get_body(index), away)
        self.plant.SetFreeBodyPose(context, self.body, X_WB)
        V_WB = SpatialVelocity(w, np.zeros(3))
        self.plant.SetFreeBodySpatialVelocity(context, self.body, V_WB)
        assert self._correction is not None  # the body is free
        if not corrected:
            own = self._correction.GetMyMutableContextFromRoot(root)
            inertias = own.get_mutable_numeric_parameter(0)
            inertias.SetFromVector(np.zeros(inertias.size()))
        return simulator, context

    def motion(self, context: "Context") -> "Motion":
        """Returns the present motion of the body."""
        X_WB = self.body.EvalPoseInWorld(context)
        V_WB = self.body.EvalSpatialVelocityInWorld(context)
        M_BBo_W = self.body.CalcSpatialInertiaInBodyFrame(context).ReExpress(X_WB.rotation())
        p_BoBcm_W = M_BBo_W.get_com()
        I_BBcm_W = M_BBo_W.Shift(p_BoBcm_W).CopyToFullMatrix6()[:3, :3]
        w, v = V_WB.rotational(), V_WB.Shift(p_BoBcm_W).translational()
        height, mass = X_WB.translation()[2] + p_BoBcm_W[2], M_BBo_W.get_mass()
        rotation = float(w @ I_BBcm_W @ w / 2)
        total = rotation + float(mass * (v @ v / 2 + G * height))
        return Motion(I_BBcm_W @ w, v, height, rotation, total)


@dataclass(frozen=True, eq=False)
class Motion:
    """How a body moves.

    Attributes:
        L: (3,), angular momentum about the centre of mass, in the world, kg m^2/s.
        v: (3,), velocity of the centre of mass, m/s.
        height: Height of the centre of mass, m.
        rotation_J: Kinetic energy of the rotation.
        total_J: Kinetic and potential energy.
    """

    L: "np.ndarray"
    v: "np.ndarray"
    height: float
    rotation_J: float
    total_J: float


def benches() -> Iterator[Bench]:
    """Yields a bench for each free object of the package, and for boxes of extreme proportions."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.tree import SpatialInertia

    from fleet_tools.config.tasks import load_task, task_names
    from fleet_tools.sim.catalog import find_task_model, model_names

    def add_model(plant: "MultibodyPlant", file: "Path") -> "RigidBody":
        (instance,) = Parser(plant).AddModels(file)
        return plant.get_body(plant.GetBodyIndices(instance)[0])

    def add_box(plant: "MultibodyPlant", edges: tuple[float, float, float]) -> "RigidBody":
        M_BBo = SpatialInertia.SolidBoxWithDensity(_DENSITY, *edges)
        return plant.AddRigidBody("box", M_BBo)

    for task in map(load_task, task_names()):
        if task.object_mount == "free":
            for name in model_names("object", task.object_family):
                file = find_task_model(task, "object", name).file
                yield Bench(name, functools.partial(add_model, file=file))
    for name, edges in _SHAPES_M.items():
        yield Bench(name, functools.partial(add_box, edges=edges))
