"""Drake's contact solver converges where a slab lies flat and the arm presses beside it.

The contact problem of a time step is built again of Drake's own terms, and solved by Newton's
method down to rounding errors. It minimizes over v: (v - v*)^T A (v - v*) / 2 - sum of N(v_n) + sum
of mu n_0 |v_t|, where dN/dv_n is Hunt and Crossley's impulse, and n_0 that of the step before. See
A. Castro et al., "A Theory of Irrotational Contact Fields" (2023), approximation `lagged`.
"""
# pyright: reportArgumentType=false

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from drake_sap_rebuilt import SIGMA, STICTION, polygons
from exam.recording import Step, note
from expert_steps import expert_steps

from fleet_tools.config.control import TIME_STEP
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.sim.simulation import Simulation

SLABS = ("brownie", "waffle", "hash_brown")
AGREEMENT = 1e-6
"""Of velocities, each by the root of its inertia, relative to all; SAP promises as much."""


@dataclass(frozen=True, eq=False)
class ContactProblem:
    """Of velocities v (nv,): their mass matrix A, v* without contact, and n contact points."""

    A: np.ndarray
    v_free: np.ndarray
    v0: np.ndarray
    points: list[np.ndarray]

    def gradient_and_hessian(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the cost: the change of momentum less the impulses, and its derivative."""
        pressure, slope, area, J, mu, d = self.points
        k, f0 = area * slope, area * pressure
        vc, n0 = J @ v, self.impulses_before
        norm = np.hypot(np.linalg.norm(vc[:, :2], axis=1), STICTION)
        t = vc[:, :2] / norm[:, None]
        f, damping = f0 - TIME_STEP * k * vc[:, 2], 1 - d * vc[:, 2]
        pushes = (f > 0) & (damping > 0)
        normal = np.where(pushes, TIME_STEP * f * damping, 0)
        impulses = np.column_stack([-(mu * n0)[:, None] * t, normal])
        G = np.zeros((len(vc), 3, 3))
        G[:, :2, :2] = (n0 * mu / norm)[:, None, None] * (np.eye(2) - t[:, :, None] * t[:, None])
        G[:, 2, 2] = np.where(pushes, TIME_STEP * (TIME_STEP * k * damping + d * f), 0)
        return (
            self.A @ (v - self.v_free) - np.einsum("nij,ni->j", J, impulses),
            self.A + np.einsum("nij,nik,nkl->jl", J, G, J),
        )

    @property
    def impulses_before(self) -> np.ndarray:
        """Normal impulses with the velocities at the beginning, (n,), N s."""
        pressure, _, area, J, _, d = self.points
        return (
            TIME_STEP * np.maximum(area * pressure, 0) * np.maximum(1 - d * (J @ self.v0)[:, 2], 0)
        )

    @property
    def is_blow(self) -> bool:
        """Whether friction may be softer than the stiction tolerance, by an estimate of Drake."""
        *_, J, mu, _ = self.points
        mobility = np.linalg.norm(J @ np.linalg.inv(self.A) @ J.swapaxes(1, 2), axis=(1, 2))
        return bool((mu * SIGMA * mobility * self.impulses_before).max() >= STICTION)

    def solved(self) -> np.ndarray:
        """Returns v where the gradient is a rounding error."""
        v, scale = self.v0, np.linalg.norm(self.A @ self.v_free) + 1e-3
        for _ in range(200):
            gradient, hessian = self.gradient_and_hessian(v)
            if np.linalg.norm(gradient) < 1e-12 * scale:
                return v
            step, length = -np.linalg.solve(hessian, gradient), 1.0
            # The cost is convex: along a step its slope grows, and is not to be positive.
            while step @ self.gradient_and_hessian(v + length * step)[0] > 0 and length > 1e-9:
                length /= 2
            v = v + length * step
        raise AssertionError("Newton's method does not converge")


def problems(simulation: Simulation, control_step: tuple) -> list[tuple[Step, ContactProblem]]:
    """Returns the time steps of a control step in which the arm is in contact, each rebuilt."""
    before, after = control_step
    plant, context = simulation.world.plant, simulation._context
    moments, found = [], []

    def look(_=None) -> None:
        note(simulation, moments)
        found.append(polygons(plant, context))

    simulation.restore(replace(before, reference=after.reference))
    look()
    simulation._simulator.set_monitor(look)
    simulation._simulator.AdvanceTo(simulation.world.simulated_until(after.step))
    simulation._simulator.clear_monitor()
    rebuilt = []
    for (one, two), points in zip(itertools.pairwise(moments), found, strict=False):
        if two.updates > one.updates and one.contact[:7].any():
            forces = one.gravity + one.motors + one.correction - one.bias
            v_free = one.v + TIME_STEP * np.linalg.solve(one.M, forces)
            rebuilt.append((Step(one, two), ContactProblem(one.M, v_free, one.v, points)))
    return rebuilt


@pytest.mark.parametrize("slab", SLABS)
def test_velocities_are_those_of_the_converged_problem(slab: str):
    env = EnvSpec.of(task="spatula", object=slab).make_tool_use()
    solved = 0
    for _, action in expert_steps(env, [0]):
        simulation = env.simulation
        before = simulation.snapshot()
        env.step(action)
        after = simulation.snapshot()
        if not env.world_state().in_contact("tool", "table"):
            continue
        for step, problem in problems(simulation, (before, after)):
            if problem.is_blow:
                continue
            weight, v = np.sqrt(np.diag(problem.A)), step.after.v
            error = np.linalg.norm(weight * (problem.solved() - v))
            assert error < AGREEMENT * np.linalg.norm(weight * v)
            solved += 1
        simulation.restore(after)
        if solved > 60:
            return
    raise AssertionError(f"the arm touched something in {solved} steps only")
