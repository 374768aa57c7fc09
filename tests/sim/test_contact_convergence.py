"""Drake's contact solver converges where a slab lies flat and the arm presses beside it.

The contact problem of a time step is built again of Drake's own terms, and solved by Newton's
method down to rounding errors. It minimizes over v: (v - v*)^T A (v - v*) / 2 - sum of N(v_n) + sum
of mu n_0 |v_t|, where dN/dv_n is Hunt and Crossley's impulse, and n_0 that of the step before. See
A. Castro et al., "A Theory of Irrotational Contact Fields" (2023), approximation `lagged`.
"""
# pyright: reportArgumentType=false

import itertools
from dataclasses import replace

import numpy as np
import pytest
from exam.recording import Step, note
from scaffold import expert_steps
from support.sap_problem import STICTION, SapProblem, polygons
from support.shares import quick_first

from fleet_tools.config.control import TIME_STEP
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.sim.simulation import Simulation

SLABS = ("brownie", "waffle", "hash_brown")
AGREEMENT = 1e-6
"""Of velocities, each by the root of its inertia, relative to all; SAP promises as much."""


def converged(problem: SapProblem, v: np.ndarray) -> np.ndarray:
    """Returns the velocities at which the gradient of the cost is a rounding error.

    Args:
        problem: The problem.
        v: (nv,), velocities at the beginning.
    """

    def gradient_and_hessian(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        impulse, hessian = problem.impulse_and_hessian(v)
        return problem.A @ (v - problem.v_star) - impulse, hessian

    scale = np.linalg.norm(problem.A @ problem.v_star) + 1e-3
    for _ in range(200):
        gradient, hessian = gradient_and_hessian(v)
        if np.linalg.norm(gradient) < 1e-12 * scale:
            return v
        step, length = -np.linalg.solve(hessian, gradient), 1.0
        # The cost is convex: along a step its slope grows, and is not to be positive.
        while step @ gradient_and_hessian(v + length * step)[0] > 0 and length > 1e-9:
            length /= 2
        v = v + length * step
    raise AssertionError("Newton's method does not converge")


def is_blow(problem: SapProblem) -> bool:
    """Whether friction may be softer than the stiction tolerance, by an estimate of Drake."""
    return bool(3 * problem.softened.max() >= STICTION)


def problems(simulation: Simulation, control_step: tuple) -> list[tuple[Step, SapProblem]]:
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
            rebuilt.append((Step(one, two), SapProblem(one.M, v_free, one.v, points)))
    return rebuilt


@pytest.mark.parametrize("slab", quick_first(SLABS, 1))
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
            if is_blow(problem):
                continue
            weight, v = np.sqrt(np.diag(problem.A)), step.after.v
            error = np.linalg.norm(weight * (converged(problem, step.before.v) - v))
            assert error < AGREEMENT * np.linalg.norm(weight * v)
            solved += 1
        simulation.restore(after)
        if solved > 60:
            return
    raise AssertionError(f"the arm touched something in {solved} steps only")
