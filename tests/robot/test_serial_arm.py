"""The equation of motion of the arm, against Drake's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.multibody.tree import JacobianWrtVariable, MultibodyForces, SpatialInertia
from support.arm import ARM, ROBOT, random_payload

PLANT, CONTEXT = ARM.plant, ARM.context
E, WORLD = PLANT.GetFrameByName(ROBOT.end_effector), PLANT.world_frame()
states = st.tuples(st.integers(0, 2**32 - 1), st.booleans(), st.floats(0.0, 5.0))


@pytest.fixture(name="at_random", scope="module")
def _at_random():
    def at_random(seed: int, loaded: bool, speed: float):
        rng = np.random.default_rng(seed)
        ARM.set_payload(random_payload(rng) if loaded else SpatialInertia.Zero())
        q, v = rng.uniform(ARM.limits.lower, ARM.limits.upper), speed * rng.normal(size=7)
        PLANT.SetPositionsAndVelocities(CONTEXT, np.concatenate([q, v]))
        return ARM.dynamics(q, v)

    return at_random


@given(state=states)
def test_the_mass_matrix_is_drakes(at_random, state):
    dynamics, _ = at_random(*state)
    np.testing.assert_allclose(dynamics.M, PLANT.CalcMassMatrix(CONTEXT), atol=1e-12)


@given(state=states)
def test_the_bias_is_drakes_inverse_dynamics_without_acceleration(at_random, state):
    dynamics, _ = at_random(*state)
    gravity = MultibodyForces(PLANT)
    PLANT.CalcForceElementsContribution(CONTEXT, gravity)
    expected = PLANT.CalcInverseDynamics(CONTEXT, np.zeros(7), gravity)
    np.testing.assert_allclose(dynamics.bias, expected, atol=1e-10)


@given(state=states)
def test_the_kinematics_are_drakes(at_random, state):
    dynamics, X_WE = at_random(*state)
    arguments = CONTEXT, JacobianWrtVariable.kV, E, np.zeros(3), WORLD, WORLD
    expected = PLANT.CalcJacobianSpatialVelocity(*arguments)
    np.testing.assert_allclose(dynamics.J, expected, atol=1e-12)
    expected = PLANT.CalcBiasSpatialAcceleration(*arguments).get_coeffs()
    np.testing.assert_allclose(dynamics.Jdot_v, expected, atol=1e-10)
    np.testing.assert_allclose(X_WE, E.CalcPoseInWorld(CONTEXT).GetAsMatrix34(), atol=1e-12)
