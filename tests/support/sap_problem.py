"""SAP's problem of a step, built from Drake's contact surfaces and solved again in numpy.

`wrong_step` takes the step of `benchmarks/drake_sap_early_stop.py` with the largest difference
(slab `Box`, approximation `lagged`), and `solve` runs Newton's method with both stopping criteria:
on the problem as Drake poses it, and with two proposed changes.
"""
# pyright: reportArgumentType=false

import itertools
from collections.abc import Sequence

import numpy as np
from drake_sap_early_stop import SLABS, H, steps
from pydrake import all as drake
from scipy.optimize import brentq

STICTION, SIGMA = 1e-4, 1e-3  # Drake's defaults


def polygons(plant: drake.MultibodyPlant, context: drake.Context) -> list[np.ndarray]:
    """Pressures (n,), Pa, gradients (n,), Pa/m, areas (n,), m^2, Jacobians (n, 3, nv).

    Of the polygons that Drake makes constraints of; the third row is along the normal. Then their
    coefficients of friction (n,), and dissipations (n,), s/m.
    """
    query, W, found = plant.get_geometry_query_input_port().Eval(context), plant.world_frame(), []
    for surface in query.ComputeContactSurfaces(drake.HydroelasticContactRepresentation.kPolygon):
        shapes = (surface.id_M(), surface.id_N())
        frames = [
            plant.GetBodyFromFrameId(query.inspector().GetFrameId(shape)).body_frame()
            for shape in shapes
        ]
        material = combined(query.inspector(), shapes)
        for face in range(surface.num_faces()):
            normal, p_WC, area = (
                f(face) for f in (surface.face_normal, surface.centroid, surface.area)
            )
            M = normal @ surface.EvaluateGradE_M_W(face) if surface.HasGradE_M() else np.inf
            N = -normal @ surface.EvaluateGradE_N_W(face) if surface.HasGradE_N() else np.inf
            gradient = 1 / (1 / M + 1 / N) if min(M, N) > 0 else 0.0
            if area < 1e-14 or min(M, N) < 1e-14:  # Drake leaves these out, too
                continue
            J_M, J_N = (
                plant.CalcJacobianTranslationalVelocity(
                    context, drake.JacobianWrtVariable.kV,
                    frame, frame.CalcPoseInWorld(context).inverse() @ p_WC, W, W)
                for frame in frames
            )  # fmt: skip
            R_WC = drake.RotationMatrix.MakeFromOneVector(-normal, 2).matrix()
            pressure = surface.poly_e_MN().EvaluateCartesian(face, p_WC)
            J = R_WC.T @ np.subtract(J_N, J_M)
            found.append((pressure, gradient, area, J, *material))
    return [np.array(column) for column in zip(*found, strict=True)]


def combined(
    inspector: drake.SceneGraphInspector, shapes: Sequence[drake.GeometryId]
) -> tuple[float, float]:
    """Friction and dissipation of two materials, as Drake combines them (its `contact_engine`)."""
    properties = [inspector.GetProximityProperties(shape) for shape in shapes]
    friction = [each.GetProperty("material", "coulomb_friction") for each in properties]
    one, other = (each.dynamic_friction() for each in friction)
    d = [each.GetProperty("material", "hunt_crossley_dissipation") for each in properties]
    meshes = map(inspector.maybe_get_hydroelastic_mesh, shapes)
    soft = [isinstance(mesh, drake.VolumeMesh) for mesh in meshes]
    if all(soft):  # the softer one deforms, and damps
        E = [each.GetProperty("hydroelastic", "hydroelastic_modulus") for each in properties]
        damping = (E[1] * d[0] + E[0] * d[1]) / (E[0] + E[1])
    else:
        damping = d[soft.index(True)]
    return 2 * one * other / (one + other), damping


class SapProblem:
    """SAP's cost over the velocities of the next step, its gradient and its Hessian.

    With `anchored`, the antiderivative of a constraint is zero at v = 0.
    """

    def __init__(
        self,
        A: np.ndarray,
        v_star: np.ndarray,
        v0: np.ndarray,
        of: Sequence[np.ndarray],
        anchored: bool = False,
    ):
        pressure, gradient, self.area, J, self.mu, self.d = of
        self.A, self.v_star, self.J, self.anchored = A, v_star, J, anchored
        self.k, self.fe = self.area * gradient, self.area * pressure
        delassus = np.linalg.norm(J @ np.linalg.inv(A) @ np.swapaxes(J, 1, 2), axis=(1, 2)) / 3
        self.n0 = H * np.maximum(self.fe, 0) * np.maximum(0, 1 - self.d * (J @ v0)[:, 2])
        self.softened = self.mu * SIGMA * delassus * self.n0
        self.soft = np.maximum(STICTION, self.softened)
        self.v_hat = np.minimum(self.fe / H / (self.k + 1e-20), 1 / (self.d + 1e-20))

    def _antiderivative(self, v: np.ndarray) -> np.ndarray:
        df = -H * self.k * v
        return H * (v * (self.fe + df / 2) - self.d * v**2 / 2 * (self.fe + 2 / 3 * df))

    def normal_cost(self, v: np.ndarray) -> np.ndarray:
        """Of each constraint, J, (n,)."""
        N = self._antiderivative(np.minimum((self.J @ v)[:, 2], self.v_hat))
        return -(N - self._antiderivative(np.minimum(0, self.v_hat)) if self.anchored else N)

    def cost(self, v: np.ndarray) -> float:
        """Of bodies, normal directions and friction, J."""
        slip = np.hypot(np.linalg.norm((self.J @ v)[:, :2], axis=1), self.soft) - self.soft
        dv = v - self.v_star
        return float(dv @ self.A @ dv / 2 + (self.normal_cost(v) + self.mu * slip * self.n0).sum())

    def impulse_and_hessian(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Generalized impulse of all contacts, (12,), and the Hessian of the cost, (12, 12)."""
        vc = self.J @ v
        f, damping = self.fe - H * self.k * vc[:, 2], 1 - self.d * vc[:, 2]
        pushes = (f > 0) & (damping > 0)
        norm = np.hypot(np.linalg.norm(vc[:, :2], axis=1), self.soft)
        t, G = vc[:, :2] / norm[:, None], np.zeros((len(vc), 3, 3))
        gamma = np.column_stack(
            [-(self.mu * self.n0)[:, None] * t, np.where(pushes, H * f * damping, 0)]
        )
        G[:, :2, :2] = np.eye(2) - t[:, :, None] * t[:, None]
        G[:, :2, :2] *= (self.mu * self.n0 / norm)[:, None, None]
        G[:, 2, 2] = np.where(pushes, H * (self.k * H * damping + self.d * f), 0)
        H_constraints = np.einsum("nij,nik,nkl->jl", self.J, G, self.J)
        return np.einsum("nij,ni->j", self.J, gamma), self.A + H_constraints

    def forces(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """On the box, of the contacts and in its motion, (3,), N."""
        impulse, motion = self.impulse_and_hessian(v)[0], self.A @ (v - self.v_star)
        return impulse[-3:] / H, motion[-3:] / H


def solve(problem: SapProblem, v: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Velocities, Newton steps, and the residual of the momentum relative to its scale."""
    scaled, stopped, cost = 1 / np.sqrt(np.diag(problem.A)), False, problem.cost(v)
    for step in itertools.count():
        impulse, hessian = problem.impulse_and_hessian(v)
        momentum = problem.A @ (v - problem.v_star) - impulse
        scale = max(np.linalg.norm(scaled * term) for term in (problem.A @ v, impulse))
        residual = float(np.linalg.norm(scaled * momentum))
        if stopped or residual <= 1e-14 + 1e-6 * scale:
            return v, step, float(residual / scale)
        dv = -np.linalg.solve(hessian, momentum)

        def slope(alpha: float, v: np.ndarray = v, dv: np.ndarray = dv) -> float:
            w = v + alpha * dv
            momentum = problem.A @ (w - problem.v_star) - problem.impulse_and_hessian(w)[0]
            return float(dv @ momentum)

        alpha = 1.5 if slope(1.5) <= 0 else float(brentq(slope, 0, 1.5, xtol=1e-12))
        v, before = v + alpha * dv, cost
        cost = problem.cost(v)
        stopped = alpha > 0.5 and abs(cost - before) < 1e-30 + 5e-16 * (abs(cost) + abs(before))
    raise AssertionError


def wrong_step() -> tuple[np.ndarray, np.ndarray, dict[str, SapProblem]]:
    """Drake's velocities before and after it, (12,), and the problems between the two."""
    states = [
        (plant.GetPositionsAndVelocities(context), np.linalg.norm(reported - motion))
        for plant, context, reported, motion in steps("lagged", SLABS["Box"])
    ]
    worst = int(np.argmax([error for _, error in states]))
    plant, context, *_ = next(steps("lagged", SLABS["Box"]))
    plant.SetPositionsAndVelocities(context, states[worst - 1][0])
    v0, A, of = (
        plant.GetVelocities(context),
        plant.CalcMassMatrix(context),
        polygons(plant, context),
    )
    force = plant.CalcGravityGeneralizedForces(context) - plant.CalcBiasTerm(context)
    v_star, steep = v0 + H * np.linalg.solve(A, force), of[1] > 1e-9 * of[1].max()
    problems = {
        "as Drake": SapProblem(A, v_star, v0, of),
        "zero at v = 0": SapProblem(A, v_star, v0, of, anchored=True),
        "polygons out": SapProblem(A, v_star, v0, [column[steep] for column in of]),
    }
    return v0, states[worst][0][-12:], problems
