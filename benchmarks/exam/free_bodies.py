"""Slabs and blocks of the package on the table: fall, penetration, friction and tipping.

They lie in the world of their task, beside the arm, which holds still.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from pydrake.geometry import GeometryId, VolumeMesh
from pydrake.math import RigidTransform
from pydrake.multibody.math import SpatialForce, SpatialVelocity
from pydrake.multibody.plant import ExternallyAppliedSpatialForce
from pydrake.multibody.tree import RigidBody
from scipy.spatial import ConvexHull

from exam import Answer, G
from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import find_task_model, model_names
from fleet_tools.sim.scene import sample_scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import TABLE_FRICTION, build_world

_PLACE = np.array([0.3, 0.55, 0.0])
"""Place of a body on the table, out of the arm's way."""

_UP = np.array([0.0, 0.0, 1.0])


class FreeBody:
    """A free link of an object, which is placed and pushed.

    Args:
        simulation: A simulation with the object.
        body: The link.

    Attributes:
        name: Name of object and link.
        mass: Its mass in the scene, kg.
        mu: Coefficient of friction with the table.
        modulus: Hydroelastic modulus, Pa.
        area: Area of its lower face, m^2.
        height: Height of the core of its collision shape, where the pressure is the modulus, m.
        p_BFoot: (3,), point of the lower face under the centre of mass.
        out: (3,), horizontal direction from there to the nearest edge of the lower face.
        to_edge: Distance of this edge, m.
    """

    def __init__(self, simulation: Simulation, body: RigidBody) -> None:
        self._simulation, self._body = simulation, body
        self._context = simulation._context  # an exam looks inside
        self.name = f"{simulation.object.name}, {body.name()}"
        self.mass = body.get_mass(self._context)
        (shape,) = simulation.world.plant.GetCollisionGeometriesForBody(body)
        self.modulus, friction = self._properties(shape)
        self.mu = 2 * friction * TABLE_FRICTION / (friction + TABLE_FRICTION)
        vertices = self._vertices(shape)
        p_BCom = body.CalcCenterOfMassInBodyFrame(self._context)
        self._bottom = vertices[vertices[:, 2] < vertices[:, 2].min() + 1e-6]
        z = self._bottom[:, 2].mean()
        self.height = self._core(shape)[2] - z
        self.p_BFoot = np.array([*p_BCom[:2], z])
        face = ConvexHull(self._bottom[:, :2])
        self.area = face.volume
        distances = -face.equations[:, 2] - face.equations[:, :2] @ p_BCom[:2]
        self.to_edge = float(distances.min())
        self.out = np.array([*face.equations[distances.argmin(), :2], 0.0])

    @property
    def weight(self) -> float:
        """Its weight, N."""
        return self.mass * G

    @property
    def lying(self) -> np.ndarray:
        """(3,), p_WB where its lower face touches the table."""
        return _PLACE - self.p_BFoot[2] * _UP

    def place(self, p_WB: np.ndarray, speed: float = 0.0) -> None:
        """Begins the scene anew, with the body elsewhere, upright, moving along `out` (m/s)."""
        simulation, plant = self._simulation, self._simulation.world.plant
        simulation.reset(simulation.scene)
        plant.SetFreeBodyPose(self._context, self._body, RigidTransform(p_WB))
        velocity = SpatialVelocity(np.zeros(3), speed * self.out)
        plant.SetFreeBodySpatialVelocity(self._context, self._body, velocity)
        plant.get_applied_spatial_force_input_port().FixValue(self._context, [])
        simulation._simulator.Initialize()
        self._steps = 0

    def push(self, force: np.ndarray, above: float = 0.0) -> None:
        """Applies a force, N, from now on, at a height above the foot, m."""
        push = ExternallyAppliedSpatialForce()
        push.body_index = self._body.index()
        push.p_BoBq_B = self.p_BFoot + above * _UP  # pyright: ignore[reportAttributeAccessIssue]
        push.F_Bq_W = SpatialForce(np.zeros(3), force)
        port = self._simulation.world.plant.get_applied_spatial_force_input_port()
        port.FixValue(self._context, [push])

    def advance(self, seconds: float = TIME_STEP) -> None:
        """Simulates so many whole time steps."""
        self._steps += round(seconds / TIME_STEP)
        self._simulation._simulator.AdvanceTo(self._steps * TIME_STEP)

    def push_harder(self, of: float, above: float, until: Callable[[], bool]) -> float:
        """Lets the body come to rest, and pushes it along `out`, harder and harder.

        Args:
            of: Expected force, N; the push grows from its half by a quarter in a second.
            above: Height of the push above the foot, m.
            until: Returns whether to stop.

        Returns:
            The last force, N.
        """
        self.place(self.lying)
        self.advance(0.2)
        force = 0.5 * of
        while not until() and force < 2 * of:
            force += 0.25 * of * TIME_STEP
            self.push(force * self.out, above)
            self.advance()
        return force

    def depth(self) -> float:
        """Returns how deep the lower face is below the table's top, m."""
        X_WB = self._body.EvalPoseInWorld(self._context)
        return -float(np.mean([(X_WB @ vertex)[2] for vertex in self._bottom]))

    def moved(self) -> np.ndarray:
        """Returns (3,), where the body is from where it lies at first, m."""
        return self._body.EvalPoseInWorld(self._context).translation() - self.lying

    def speed(self) -> float:
        """Returns the speed of the centre of mass along `out`, m/s."""
        v = self._body.CalcCenterOfMassTranslationalVelocityInWorld(self._context)
        return float(v @ self.out)

    def tilt(self) -> float:
        """Returns the angle of its axis with the vertical, rad."""
        R_WB = self._body.EvalPoseInWorld(self._context).rotation().matrix()
        return math.acos(min(R_WB[2, 2], 1.0))

    def _properties(self, shape: GeometryId) -> tuple[float, float]:
        """Returns modulus and coefficient of friction of a shape in the present scene."""
        properties = self._simulation.query().inspector().GetProximityProperties(shape)
        assert properties is not None  # a collision shape
        modulus = properties.GetProperty("hydroelastic", "hydroelastic_modulus")
        return modulus, properties.GetProperty("material", "coulomb_friction").static_friction()

    def _core(self, shape: GeometryId) -> np.ndarray:
        """Returns the common point of all tetrahedra of a shape, in B, (3,)."""
        inspector = self._simulation.world.scene_graph.model_inspector()
        mesh = inspector.maybe_get_hydroelastic_mesh(shape)
        assert isinstance(mesh, VolumeMesh)
        corners = [{tetrahedron.vertex(k) for k in range(4)} for tetrahedron in mesh.tetrahedra()]
        (core,) = set.intersection(*corners)
        return inspector.GetPoseInFrame(shape) @ mesh.vertex(core)

    def _vertices(self, shape: GeometryId) -> np.ndarray:
        """Returns the vertices of a shape's convex hull in B, (n, 3)."""
        inspector = self._simulation.world.scene_graph.model_inspector()
        hull, X_BG = inspector.GetConvexHull(shape), inspector.GetPoseInFrame(shape)
        return np.array([X_BG @ hull.vertex(k) for k in range(hull.num_vertices())])


def free_bodies(objects: tuple[str, ...] = ()) -> Iterator[FreeBody]:
    """Yields the links of the package's free objects, each in a scene of its task.

    Args:
        objects: Names of objects; all if there are none.
    """
    for task in map(load_task, task_names()):
        if task.object_mount != "free":
            continue
        tool = model_names("tool", task.tool_family)[0]
        for seed, name in enumerate(model_names("object", task.object_family)):
            if objects and name not in objects:
                continue
            models = find_task_model(task, "tool", tool), find_task_model(task, "object", name)
            scene = sample_scene(task, seed, tool=tool, object=name)
            world = build_world(task, load_robot(), *models)
            simulation = Simulation(world, *models, scene)
            for body in world.bodies(world.object):
                yield FreeBody(simulation, body)


def free_fall(body: FreeBody) -> Answer:
    """Lets a body fall."""
    seconds, height = 0.4, 0.9
    body.place(body.lying + height * _UP)
    body.advance(seconds)
    fallen = height - float(body.moved()[2])
    return Answer("free fall", body.name, G * seconds**2 / 2, fallen, "m")


def penetration(body: FreeBody, depth: float | None = 1e-4) -> Answer:
    """Loads a body that lies on the table.

    The pressure in a compliant convex shape grows linearly from its surface to the modulus at its
    centre. On the rigid table the whole lower face has the pressure of its depth.

    Args:
        body: The body.
        depth: Expected depth, m; None: of its own weight.
    """
    stiffness = body.modulus * body.area / body.height
    load = 0.0 if depth is None else stiffness * depth - body.weight
    body.place(body.lying)
    body.push(-load * _UP)
    body.advance(1.0)
    law = "penetration by its own weight" if depth is None else "penetration"
    expected = (body.weight + load) / stiffness
    return Answer(law, body.name, expected * 1e6, body.depth() * 1e6, "um")


def friction_onset(body: FreeBody) -> Answer:
    """Pushes a body at its foot, until it has slid for a tenth of a second at 1 mm/s on average."""
    speeds = [0.0] * 25

    def slides() -> bool:
        speeds.append(body.speed())
        return sum(speeds[-25:]) / 25 > 1e-3

    expected = body.mu * body.weight
    return Answer(
        "friction onset", body.name, expected, body.push_harder(expected, 0.0, slides), "N"
    )


def sliding_stop(body: FreeBody) -> Answer:
    """Lets a body slide until it is slower than 2 mm/s, for two seconds at most."""
    start = 1.0
    body.place(body.lying, start)
    for _ in range(round(2.0 / TIME_STEP)):
        body.advance()
        if abs(body.speed()) < 2e-3:
            break
    distance = float(body.moved() @ body.out)
    return Answer("sliding stop", body.name, start**2 / (2 * body.mu * G), distance, "m")


def tipping_onset(body: FreeBody) -> Answer:
    """Pushes a body above its foot, where half of its friction would do, until it tilts by 10 deg.

    The point may be above the body, as if a rod were fixed to it.
    """
    above = 2.0 * body.to_edge / body.mu
    expected = body.weight * body.to_edge / above
    force = body.push_harder(expected, above, lambda: body.tilt() > math.radians(10.0))
    return Answer("tipping onset", body.name, expected, force, "N")


LAWS: tuple[Callable[[FreeBody], Answer], ...] = (
    free_fall,
    penetration,
    lambda body: penetration(body, None),
    friction_onset,
    sliding_stop,
    tipping_onset,
)
"""Functions that answer for a free body."""
