"""Measures whether free bodies keep their momentum and energy: `python benchmarks/tumbling.py`.

    python benchmarks/tumbling.py --speeds 60 --drops 0 --json

Every free object of the package flies and tumbles without contact, and so do a rod and a plate of
extreme proportions, with the forces that make Drake's step conserve momentum (`fleet_tools.sim.
free_rotation`) and without them. Then objects fall onto the table as they spin.
"""

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console import print_now

from fleet_tools.config.values import Count, CountOrZero, Positive
from fleet_tools.utils import cli

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
_G = 9.81
_HIGH = 1000.0
"""Height at which bodies fly, m."""
_DROP_HEIGHT = 0.3
_DROP_SECONDS = 2.0

_RUNAWAY = 1e9
"""Energy relative to the start from which a flight counts as diverged."""

_FLIGHT_HEADER = (
    "| object | rad/s | energy after 1 s, uncorrected | corrected | at the end, uncorrected "
    "| corrected | at most, corrected | error of the angular momentum, uncorrected | corrected "
    f"| velocity error, m/s, uncorrected | corrected |\n|{'---|' * 11}"
)
_DROP_HEADER = (
    "| object | drop | rad/s | energy at most, uncorrected | corrected "
    f"| highest rebound, m, uncorrected | corrected |\n|{'---|' * 7}"
)


class TumblingOptions(cli.Options):
    """Measures momentum and energy of tumbling bodies, with the correction of Drake's step and not.

    In flight, energy is that of rotation, relative to the start; errors are relative for the
    angular momentum. In drops, energy is kinetic and potential energy relative to the start, above
    the table, and the rebound is the largest height of the centre of mass after the first contact.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    speeds: tuple[Positive, ...] = (15, 30, 60)
    """Angular speeds at the start, rad/s, about axes that are drawn."""
    seconds: Count = 4
    """Duration of each flight, s."""
    drops: CountOrZero = 3
    """Number of drops of each object onto the table, at the speeds in turn."""


@dataclass(frozen=True)
class Flight:
    """How a body flew.

    Attributes:
        object: Its name.
        speed: Angular speed at the start, rad/s.
        corrected: Whether the correction was active.
        energy_1s, energy_end, energy_most: Rotational energy relative to the start.
        angular_error: Largest error of the angular momentum relative to the start.
        velocity_error: Largest error of the velocity of the centre of mass, m/s.
    """

    object: str
    speed: float
    corrected: bool
    energy_1s: float
    energy_end: float
    energy_most: float
    angular_error: float
    velocity_error: float


@dataclass(frozen=True)
class Drop:
    """How an object fell onto the table.

    Attributes:
        object: Its name.
        number: Number of the drop, which draws pose and axis.
        speed: Angular speed at the start, rad/s.
        corrected: Whether the correction was active.
        energy_most: Largest mechanical energy relative to the start.
        rebound: Largest height of the centre of mass after the first contact, m.
    """

    object: str
    number: int
    speed: float
    corrected: bool
    energy_most: float
    rebound: float


def _measure(options: TumblingOptions) -> int:
    flights: list[Flight] = []
    drops: list[Drop] = []
    print_now(options, _FLIGHT_HEADER)
    benches = list(_benches())
    for bench in benches:
        for speed in options.speeds:
            pair = [fly(bench, speed, corrected, options.seconds) for corrected in (False, True)]
            flights.extend(pair)
            print_now(options, _flight_text(*pair))
    if options.drops:
        print_now(options, f"\n{_DROP_HEADER}")
    for bench in benches:
        for number in range(options.drops if bench.has_shape else 0):
            speed = options.speeds[number % len(options.speeds)]
            pair = [fall(bench, number, speed, corrected) for corrected in (False, True)]
            drops.extend(pair)
            print_now(options, _drop_text(*pair))
    if options.json_output:
        found = {"flights": [asdict(f) for f in flights], "drops": [asdict(d) for d in drops]}
        options.report(found, str)
    return cli.OK


def _flight_text(one: Flight, other: Flight) -> str:
    """Returns a row of the table: uncorrected and corrected."""
    return (
        f"| {one.object} | {one.speed:g} "
        f"| {one.energy_1s:.3g} | {other.energy_1s:.3g} "
        f"| {one.energy_end:.3g} | {other.energy_end:.3g} | {other.energy_most:.3g} "
        f"| {one.angular_error:.1e} | {other.angular_error:.1e} "
        f"| {one.velocity_error:.1e} | {other.velocity_error:.1e} |"
    )


def _drop_text(one: Drop, other: Drop) -> str:
    return (
        f"| {one.object} | {one.number} | {one.speed:g} "
        f"| {one.energy_most:.3f} | {other.energy_most:.3f} "
        f"| {one.rebound:.3f} | {other.rebound:.3f} |"
    )


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

        from fleet_tools.sim.gyroscopic import add_gyroscopic_correction
        from fleet_tools.sim.world import TABLE_FRICTION, TIME_STEP

        builder = DiagramBuilder()
        config = MultibodyPlantConfig(time_step=TIME_STEP, discrete_contact_approximation="lagged")
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
            away = RigidTransform([100.0 + k, 0.0, _HIGH])
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
        total = rotation + float(mass * (v @ v / 2 + _G * height))
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


def _benches() -> Iterator[Bench]:
    """Yields a bench for each free object of the package, and for boxes of extreme proportions."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.tree import SpatialInertia

    from fleet_tools.config.tasks import load_task, task_names
    from fleet_tools.sim.catalog import model_names
    from fleet_tools.sim.task_models import find_task_model

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


def fly(bench: Bench, speed: float, corrected: bool, seconds: int) -> Flight:
    """Lets a body tumble under its weight, high above the table."""
    import numpy as np
    from pydrake.math import RigidTransform

    from fleet_tools.sim.gyroscopic import normalize_quaternions
    from fleet_tools.sim.world import TIME_STEP

    w = _drawn_velocity(np.random.default_rng(round(speed)), speed)
    simulator, context = bench.start(RigidTransform([0.0, 0.0, _HIGH]), w, corrected)
    start = bench.motion(context)
    energies, angular_error, velocity_error = [1.0], 0.0, 0.0
    for step in range(1, round(seconds / TIME_STEP) + 1):
        simulator.AdvanceTo(step * TIME_STEP)
        normalize_quaternions(bench.plant, context)
        now = bench.motion(context)
        energies.append(now.rotation_J / start.rotation_J)
        if energies[-1] > _RUNAWAY:
            energies, angular_error, velocity_error = [np.inf], np.inf, np.inf
            break
        v_expected = start.v - [0.0, 0.0, _G * step * TIME_STEP]
        angular_error = max(angular_error, _norm(now.L - start.L) / _norm(start.L))
        velocity_error = max(velocity_error, _norm(now.v - v_expected))
    return Flight(
        object=bench.name,
        speed=speed,
        corrected=corrected,
        energy_1s=float(energies[min(round(1 / TIME_STEP), len(energies) - 1)]),
        energy_end=float(energies[-1]),
        energy_most=float(max(energies)),
        angular_error=float(angular_error),
        velocity_error=float(velocity_error),
    )


def fall(bench: Bench, number: int, speed: float, corrected: bool) -> Drop:
    """Drops a body onto the table as it spins."""
    import numpy as np
    from pydrake.math import RigidTransform, RollPitchYaw

    from fleet_tools.sim.world import TIME_STEP

    generator = np.random.default_rng(number)
    orientation = RollPitchYaw(generator.uniform(-np.pi, np.pi, 3))
    w = _drawn_velocity(generator, speed)
    above = RigidTransform(orientation, [0.0, 0.0, _DROP_HEIGHT])
    simulator, context = bench.start(above, w, corrected)
    start = bench.motion(context)
    most, rebound, landed = 0.0, 0.0, False
    for step in range(1, round(_DROP_SECONDS / TIME_STEP) + 1):
        simulator.AdvanceTo(step * TIME_STEP)
        now = bench.motion(context)
        most = max(most, now.total_J / start.total_J)
        landed = landed or now.v[2] > -_G * (step - 1) * TIME_STEP
        rebound = max(rebound, now.height if landed and now.v[2] > 0 else 0.0)
    return Drop(
        object=bench.name,
        number=number,
        speed=speed,
        corrected=corrected,
        energy_most=float(most),
        rebound=float(rebound),
    )


def _drawn_velocity(generator: "np.random.Generator", speed: float) -> "np.ndarray":
    """Returns an angular velocity about a drawn axis, rad/s."""
    axis = generator.normal(size=3)
    return speed * axis / _norm(axis)


def _norm(vector: "np.ndarray") -> float:
    return math.sqrt(vector @ vector)


PROGRAM = cli.Program(
    "tumbling.py", cli.Command(TumblingOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
