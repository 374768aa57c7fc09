"""Momentum-conserving integration of free rigid bodies, as a Drake system.

Drake's discrete step of a free body with angular velocity w, pose q and step h evaluates the
gyroscopic term at the start of the step. It turns the body by the velocity w1 at its end:

    I (w1 - w) / h + w x I w = tau,   q1 = (1 + h/2 [0, w1]) q.

Without a moment its angular momentum and its energy grow, the faster the larger h |w| is. The
increment of q is the Cayley map of w1, after which the angular momentum is the same if

    I (w1 - w) + h/2 w1 x I (w1 + w) = 0,

which follows from R(w1) I R(w1)^T w1 = I w. It is quadratic in w1. Multiplied by w1 it says that
w1.I w1 = w1.I w, so that w1.I w1 <= w.I w. No solution has more kinetic energy, and since solutions
are bounded for every h, there is one for every h (a homotopy from h = 0 keeps the degree, 1).

Vectors are triples of numbers, matrices triples of rows; frames: W world, B body.
"""

import weakref
from typing import NamedTuple

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import RigidBody
from pydrake.systems.framework import BasicVector, Context, DiagramBuilder, LeafSystem

from fleet_tools.robot.python_systems import release_cycles
from fleet_tools.utils.straight_line import pack, straight_line
from fleet_tools.utils.symbols import larger, where, zeros

_ITERATIONS = 12
"""Largest number of Newton iterations; 5 are enough up to h |w| = 4."""
_TOLERANCE = 1e-10
"""Last Newton step relative to |w1|; convergence is quadratic, so that the error is its square."""

INERTIA_SIZE = 13
"""Size of a body's inertia: mass m, kg; p_BoBcm_B (3), m; unit inertia about Bcm, by rows, m^2."""


class Bodies(NamedTuple):
    """Free bodies of a plant.

    Attributes:
        q_starts: Index in the plant's state of each body's quaternion.
        v_starts: Index in the velocities of each body's angular velocity, which the velocity of Bo
            follows.
        size: Number of velocities nv.
        h: Time step, s.
    """

    q_starts: tuple[int, ...]
    v_starts: tuple[int, ...]
    size: int
    h: float


@straight_line
def conserving_forces(x: np.ndarray, inertias: np.ndarray, bodies: tuple[Bodies]) -> np.ndarray:
    """Returns the generalized forces with which a step of Drake conserves the bodies' momentum.

    Linear momentum needs a force where the centre of mass is not at the origin Bo of the body,
    whose velocity is the state. Weight and contact add to both, as always. The centre of mass
    stays within h |w x p_BoBcm| of its path.

    Args:
        x: (nq + nv,), positions and velocities of the plant.
        inertias: (n, 13), the inertia of each body, see INERTIA_SIZE.
        bodies: The bodies.

    Returns:
        (nv,), moment about Bo (N m) and force (N) on each body, in W; 0 for all other velocities.
    """
    ((q_starts, v_starts, size, h),) = bodies
    tau = zeros(size)
    for k in range(len(q_starts)):
        i, j = q_starts[k], v_starts[k]
        R_WB = _rotation((x[i], x[i + 1], x[i + 2], x[i + 3]))
        v = len(x) - size + j
        w = _times_transposed(R_WB, (x[v], x[v + 1], x[v + 2]))  # in B, as all that follows
        m = inertias[k, 0]
        c = (inertias[k, 1], inertias[k, 2], inertias[k, 3])
        G = (
            (inertias[k, 4], inertias[k, 5], inertias[k, 6]),
            (inertias[k, 7], inertias[k, 8], inertias[k, 9]),
            (inertias[k, 10], inertias[k, 11], inertias[k, 12]),
        )
        w1 = conserving_velocity(G, w, h)
        alpha = _scaled(_difference(w1, w), 1 / h)
        c_change = _difference(rotated(c, w1, h), c)
        # With both, w1 x c1 + v1 = w x c + v in the absence of other forces.
        a = _difference(_cross(w, _cross(w, c)), _scaled(_cross(w1, c_change), 1 / h))
        moment = _sum(_sum(_times(G, alpha), _cross(w, _times(G, w))), _cross(c, a))
        moment_W, force_W = _times(R_WB, _scaled(moment, m)), _times(R_WB, _scaled(a, m))
        for n in range(3):
            tau[j + n], tau[j + 3 + n] = moment_W[n], force_W[n]
    return tau


@straight_line
def conserving_velocity(G, w, h):
    """Returns the angular velocity after a step that conserves the angular momentum, (3,), rad/s.

    Where Newton's method fails, the velocity stays: energy and the amount of the angular momentum
    are still conserved, and only its direction is not.

    Args:
        G: (3, 3), inertia, or unit inertia, about the centre of mass, at the start of the step.
        w: (3,), angular velocity at the start, rad/s, in the frame of G.
        h: Time step, s.
    """
    L = _times(G, w)
    w1, converged, result = w, False, w
    for _ in range(_ITERATIONS):
        L1 = _times(G, w1)
        s = _sum(L1, L)
        residual = _sum(_difference(L1, L), _scaled(_cross(w1, s), h / 2))
        # Columns of the Jacobian G + h/2 ([w1] G - [s]); those of G are its rows.
        change = _solve(
            _sum(G[0], _scaled(_sum(_cross(w1, G[0]), (0.0, -s[2], s[1])), h / 2)),
            _sum(G[1], _scaled(_sum(_cross(w1, G[1]), (s[2], 0.0, -s[0])), h / 2)),
            _sum(G[2], _scaled(_sum(_cross(w1, G[2]), (-s[1], s[0], 0.0)), h / 2)),
            residual,
        )
        w1 = _difference(w1, change)
        small = _dot(change, change) <= _TOLERANCE * _TOLERANCE * _dot(w1, w1)
        # The first w1 after which steps are small; w as long as there is none.
        found = [
            where(converged, r, where(small, a, b)) for r, a, b in zip(result, w1, w, strict=True)
        ]
        converged, result = small | converged, tuple(found)
    return result


@straight_line
def rotated(p, w, h):
    """Returns a vector after the rotation of a step, (3,): the Cayley map of the velocity.

    Args:
        p: (3,), the vector before.
        w: (3,), angular velocity at the end of the step, rad/s, in the same frame.
        h: Time step, s.
    """
    a = _scaled(w, h / 2)
    turn = _cross(a, p)
    return _sum(p, _scaled(_sum(turn, _cross(a, turn)), 2 / (1 + _dot(a, a))))


def _rotation(q):
    """Returns the rotation matrix of a quaternion (w, x, y, z) of any length but 0."""
    w, x, y, z = q
    # Drake's step lets the length grow; squares of large numbers would overflow.
    length = larger(larger(abs(w), abs(x)), larger(abs(y), abs(z)))
    w, x, y, z = w / length, x / length, y / length, z / length
    s = 2 / (w * w + x * x + y * y + z * z)
    return (
        (1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)),
        (s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)),
        (s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)),
    )


def _solve(a, b, c, y):
    """Returns x with x[0] a + x[1] b + x[2] c = y, by Cramer's rule."""
    bc = _cross(b, c)
    det = _dot(a, bc)
    return (_dot(y, bc) / det, _dot(y, _cross(c, a)) / det, _dot(y, _cross(a, b)) / det)


def _times(A, b):
    return (_dot(A[0], b), _dot(A[1], b), _dot(A[2], b))


def _times_transposed(A, b):
    return _sum(_sum(_scaled(A[0], b[0]), _scaled(A[1], b[1])), _scaled(A[2], b[2]))


def _cross(a, b):
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _sum(a, b):
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _difference(a, b):
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _scaled(a, factor):
    return (factor * a[0], factor * a[1], factor * a[2])


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
        forces = conserving_forces.bind(np.zeros(plant.num_multibody_states()), inertias, packed)
        state, numbers = forces.inputs[0], forces.inputs[1].reshape(-1)
        this = weakref.ref(self)  # a Python system that keeps a bound method is never freed

        def calc(context: Context, output: BasicVector) -> None:
            system = this()
            assert system is not None  # Drake calls it only while the diagram lives
            state[:] = system.EvalVectorInput(context, 0).value()
            numbers[:] = context.get_numeric_parameter(0).value()
            output.SetFromVector(forces())

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
