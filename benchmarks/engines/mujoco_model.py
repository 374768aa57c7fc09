"""Bodies, joints and shapes of a plant, in the scene of a context, as a model of MuJoCo's.

What the engines have in common is carried over: masses and inertias, frames, joints with their
limits, armatures and brakes, convex shapes, and the friction of each pair of shapes by Drake's
rule. What they do not have in common is contact: Drake presses pressure fields of given moduli into
each other, MuJoCo lets spring and damper act where shapes penetrate, as stiff as the time constant
says, whatever the material.
"""

import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pydrake.geometry import Box, Capsule, Convex, GeometryId, HalfSpace, Mesh
from pydrake.math import RigidTransform
from pydrake.multibody.tree import BodyIndex, Joint, PrismaticJoint, RevoluteJoint, RigidBody
from pydrake.systems.framework import Context

from fleet_tools.sim.world import World

mujoco: Any = importlib.import_module("mujoco")  # has no types

TIME_STEP = 0.001
"""Time step of MuJoCo, s."""


class Stiffness(NamedTuple):
    """How hard contact, joint limits and brakes are, by MuJoCo's `solref` and `solimp`.

    Attributes:
        time_constant_s: Time in which a violation fades, s; its manual asks for two time steps.
        brake: Impedance of brakes, below 1: one below its limit creeps in proportion to
            (1 - brake) / brake. That of contact is MuJoCo's default.
    """

    time_constant_s: float
    brake: float


_MASSLESS_KG = 1e-6  # MuJoCo moves no body without mass


@dataclass(frozen=True, eq=False)
class MujocoModel:
    """A model, and where its state lies in that of the plant.

    Attributes:
        model: The model.
        joints: Indices of positions and velocities in the plant and in the model, of joints with
            one degree of freedom: (joints, 4).
        free: Indices of the first position and velocity likewise, of free bodies: (bodies, 4).
    """

    model: Any
    joints: np.ndarray
    free: np.ndarray


def mujoco_model(world: World, root: Context, stiffness: Stiffness) -> MujocoModel:
    """Returns a world as it is in a context, with the poses and parameters of its scene.

    Args:
        world: The world.
        root: Context of its diagram, to which a scene was applied.
        stiffness: Of all that MuJoCo makes soft.

    Raises:
        ValueError: The plant has joints or shapes of a kind that is not carried over.
    """
    plant = world.plant
    moving = [j for j in map(plant.get_joint, plant.GetJointIndices()) if j.num_positions() == 1]
    zero = plant.CreateDefaultContext()
    zero.SetTimeStateAndParametersFrom(plant.GetMyContextFromRoot(root))
    q = plant.GetPositions(zero)
    q[[joint.position_start() for joint in moving]] = 0.0
    plant.SetPositions(zero, q)
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep = TIME_STEP
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.enableflags |= mujoco.mjtEnableBit.mjENBL_MULTICCD
    # With the default, faces that touch were once said to be 27 mm deep in each other.
    spec.option.ccd_tolerance, spec.option.ccd_iterations = 1e-8, 500
    spec.option.gravity = plant.gravity_field().gravity_vector()
    inboard = {plant.get_joint(i).child_body().index(): i for i in plant.GetJointIndices()}
    made = {plant.world_body().index(): spec.worldbody}

    def add(body: RigidBody) -> Any:
        if (index := body.index()) in made:
            return made[index]
        joint = plant.get_joint(inboard[index]) if index in inboard else None
        free = joint is None or joint.num_positions() == 7
        parent = plant.world_body() if joint is None or free else joint.parent_body()
        X_PB = parent.EvalPoseInWorld(zero).inverse() @ body.EvalPoseInWorld(zero)
        found = made[index] = add(parent).add_body(name=_name(body), **_placed(X_PB))
        _set_inertia(found, body, zero)
        if free:
            found.add_freejoint(name=_name(body))
        elif joint is not None and joint.num_positions() == 1:
            _add_joint(found, joint, zero, stiffness)
        elif joint is not None and joint.num_positions():
            raise ValueError(f"{joint.name()} is a {joint.type_name()} joint.")
        return found

    for index in range(plant.num_bodies()):
        add(plant.get_body(BodyIndex(index)))
    _set_actuators(spec, world)
    _add_shapes(spec, world, root, made, stiffness)
    model = spec.compile()
    size = plant.num_positions()
    joints = [(j.position_start(), size + j.velocity_start(), _name(j)) for j in moving]
    bodies = [
        (b.floating_positions_start(), size + b.floating_velocities_start_in_v(), _name(b))
        for b in map(plant.get_body, plant.GetFloatingBaseBodies())
    ]
    return MujocoModel(model, _addresses(model, joints), _addresses(model, bodies))


def _addresses(model: Any, joints: list[tuple[int, int, str]]) -> np.ndarray:
    rows = [
        (q, v, model.jnt_qposadr[i], model.jnt_dofadr[i])
        for q, v, i in ((q, v, model.joint(name).id) for q, v, name in joints)
    ]
    return np.array(rows, int).reshape(-1, 4)


def _name(part: RigidBody | Joint) -> str:
    return f"{int(part.model_instance())}/{part.name()}"


def _placed(X: RigidTransform) -> dict[str, np.ndarray]:
    return {"pos": X.translation(), "quat": X.rotation().ToQuaternion().wxyz()}


def _set_inertia(made: Any, body: RigidBody, context: Context) -> None:
    M_B = body.CalcSpatialInertiaInBodyFrame(context)
    p, m = M_B.get_com(), M_B.get_mass()
    I_cm = M_B.CalcRotationalInertia().CopyToFullMatrix3()
    I_cm -= m * (p @ p * np.eye(3) - np.outer(p, p))
    made.explicitinertial, made.mass, made.ipos = True, max(m, _MASSLESS_KG), p
    if m < _MASSLESS_KG:
        I_cm = _MASSLESS_KG * 1e-4 * np.eye(3)
    made.fullinertia = [*np.diag(I_cm), I_cm[0, 1], I_cm[0, 2], I_cm[1, 2]]


def _add_joint(made: Any, joint: Joint, context: Context, stiffness: Stiffness) -> None:
    """Adds a joint, whose frames in both bodies coincide where it is zero."""
    frame = joint.frame_on_child()
    X_BM = frame.CalcPose(context, joint.child_body().body_frame())
    if isinstance(joint, RevoluteJoint):
        kind, axis = mujoco.mjtJoint.mjJNT_HINGE, joint.revolute_axis()
    elif isinstance(joint, PrismaticJoint):
        kind, axis = mujoco.mjtJoint.mjJNT_SLIDE, joint.translation_axis()
    else:
        raise ValueError(f"{joint.name()} is a {joint.type_name()} joint.")
    limits = float(joint.position_lower_limits()[0]), float(joint.position_upper_limits()[0])
    solref = [stiffness.time_constant_s, 1.0]
    made.add_joint(
        name=_name(joint),
        type=kind,
        pos=X_BM.translation(),
        axis=X_BM.rotation() @ axis,
        limited=bool(np.isfinite(limits).all()),
        range=limits if np.isfinite(limits).all() else (0.0, 0.0),
        damping=float(joint.default_damping_vector()[0]),
        solref_limit=solref,
        solref_friction=solref,
        solimp_friction=[stiffness.brake, stiffness.brake, 0.001, 0.5, 2.0],
    )


def _set_actuators(spec: Any, world: World) -> None:
    """Sets what actuators add to joints: rotors, and brakes with their largest force."""
    plant, joints = world.plant, {each.name: each for each in spec.joints}
    for index in plant.GetJointActuatorIndices():
        actuator = plant.get_joint_actuator(index)
        joint = joints[_name(actuator.joint())]
        joint.armature = actuator.default_reflected_inertia()
        if actuator.has_controller():
            joint.frictionloss = actuator.effort_limit()


def _add_shapes(
    spec: Any, world: World, root: Context, made: dict[Any, Any], stiffness: Stiffness
) -> None:
    """Adds the shapes, and the pairs of them that Drake lets touch."""
    plant, inspector = world.plant, _query(world, root).inspector()
    shapes: dict[GeometryId, float] = {}
    for index, there in made.items():
        for shape in plant.GetCollisionGeometriesForBody(plant.get_body(index)):
            properties = inspector.GetProximityProperties(shape)
            friction = properties.GetProperty("material", "coulomb_friction").dynamic_friction()
            shapes[shape] = friction
            name = f"shape {shape.get_value()}"
            geom = there.add_geom(name=name, contype=0, conaffinity=0, mass=0.0)
            X_BG = inspector.GetPoseInFrame(shape)
            geom.pos, geom.quat = _placed(X_BG).values()
            _set_shape(spec, geom, name, inspector.GetShape(shape))
    for one, other in inspector.GetCollisionCandidates():
        bodies = [plant.GetBodyFromFrameId(inspector.GetFrameId(each)) for each in (one, other)]
        if all(body.model_instance() == world.arm for body in bodies):
            continue  # the arm does not reach itself
        mu = shapes[one], shapes[other]
        both = 2.0 * mu[0] * mu[1] / max(sum(mu), 1e-12)  # as Drake combines them
        spec.add_pair(
            geomname1=f"shape {one.get_value()}",
            geomname2=f"shape {other.get_value()}",
            condim=3,
            friction=[both, both, 0.0, 0.0, 0.0],
            solref=[stiffness.time_constant_s, 1.0],
        )


def _set_shape(spec: Any, geom: Any, name: str, shape: Any) -> None:
    if isinstance(shape, Box):
        geom.type, geom.size = mujoco.mjtGeom.mjGEOM_BOX, [each / 2.0 for each in shape.size()]
    elif isinstance(shape, HalfSpace):
        geom.type, geom.size = mujoco.mjtGeom.mjGEOM_PLANE, [0.0, 0.0, 1.0]
    elif isinstance(shape, Capsule):
        geom.type = mujoco.mjtGeom.mjGEOM_CAPSULE
        geom.size = [shape.radius(), shape.length() / 2.0, 0.0]
    elif isinstance(shape, Convex | Mesh):
        hull = shape.GetConvexHull()
        points = np.array([hull.vertex(i) for i in range(hull.num_vertices())])
        spec.add_mesh(name=name, uservert=points.ravel())
        geom.type, geom.meshname = mujoco.mjtGeom.mjGEOM_MESH, name
    else:
        raise ValueError(f"A shape is a {type(shape).__name__}.")


def _query(world: World, root: Context) -> Any:
    scene_graph = world.scene_graph
    context = scene_graph.GetMyContextFromRoot(root)
    return scene_graph.get_query_output_port().Eval(context)
