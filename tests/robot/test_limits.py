"""The law that keeps the limits of joints, on random dynamics and in the environments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.control import TIME_STEP
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.limits import (
    APPROACH_RATE,
    BRAKING_RATE,
    MOTION_SHARE,
    SPEED_SHARE,
    acceleration_bounds,
    limited_torque,
    motion_scale,
)

ARM = ArmModel(load_robot())
LIMITS = ARM.limits
seeds = st.integers(0, 2**32 - 1)
strengths = st.sampled_from([1.0, 30.0, 1e3, 1e6])


class Case:
    """A state of the arm within its limits, and a desired acceleration."""

    def __init__(self, seed: int, strength: float, speed: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.q = rng.uniform(LIMITS.lower, LIMITS.upper)
        near = rng.random(7) < 0.2
        self.q[near] = np.where(rng.random(7) < 0.5, LIMITS.lower, LIMITS.upper)[near]
        slowest = -np.minimum(SPEED_SHARE * LIMITS.speed, APPROACH_RATE * (self.q - LIMITS.lower))
        fastest = np.minimum(SPEED_SHARE * LIMITS.speed, APPROACH_RATE * (LIMITS.upper - self.q))
        self.bounds_of_speed = slowest, fastest
        self.v = speed * rng.uniform(slowest, fastest)
        dynamics, _ = ARM.dynamics(self.q, self.v)
        self.M, self.bias = dynamics.M, dynamics.bias
        self.vdot = strength * rng.normal(size=7)

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns torques and binding limits, (7,) and (3, 7)."""
        result = limited_torque(self.vdot, self.M, self.bias, self.q, self.v, LIMITS)
        return result[:7], result[7:].reshape(3, 7)

    def acceleration(self) -> np.ndarray:
        """Returns the joint acceleration of the torques."""
        return np.linalg.solve(self.M, self.solve()[0] - self.bias)

    def braking_suffices(self) -> bool:
        """Whether the torques allow the braking that the bounds ask for."""
        x0 = np.clip(-BRAKING_RATE * self.v, *acceleration_bounds(self.q, self.v, LIMITS))
        return bool((np.abs(self.M @ x0 + self.bias) <= LIMITS.effort).all())


@given(seeds, strengths, st.floats(0.0, 20.0))
def test_torques_keep_their_limits_to_the_last_bit_at_any_speed(seed, strength, speed):
    tau, _ = Case(seed, strength, speed).solve()
    assert (np.abs(tau) <= LIMITS.effort).all()


@given(seeds, strengths)
def test_the_next_velocity_is_within_its_bounds(seed, strength):
    case = Case(seed, strength)
    if not case.braking_suffices():
        return
    slowest, fastest = case.bounds_of_speed
    after = case.v + TIME_STEP * case.acceleration()
    assert (after >= slowest - 1e-9).all() and (after <= fastest + 1e-9).all()
    q = case.q + TIME_STEP * after  # so that, step by step, no joint passes its range's end
    assert (q >= LIMITS.lower - 1e-9).all() and (q <= LIMITS.upper + 1e-9).all()


@given(seeds, st.floats(0.0, 1.0))
def test_within_the_limits_the_law_is_untouched(seed, part):
    case = Case(seed, 1.0)
    lowest, highest = acceleration_bounds(case.q, case.v, LIMITS)
    case.vdot = np.clip(part * case.vdot, lowest, highest)
    free = case.M @ case.vdot + case.bias
    if (np.abs(free) > LIMITS.effort).any():
        return
    tau, binding = case.solve()
    np.testing.assert_allclose(tau, free, atol=1e-11)
    assert not binding.any()


@given(seeds, strengths)
def test_the_acceleration_is_on_the_line_from_braking(seed, strength):
    case = Case(seed, strength)
    if not case.braking_suffices():
        return
    x0 = np.clip(-BRAKING_RATE * case.v, *acceleration_bounds(case.q, case.v, LIMITS))
    done, asked = case.acceleration() - x0, case.vdot - x0
    part = done @ asked / (asked @ asked)
    assert -1e-9 <= part <= 1 + 1e-9
    np.testing.assert_allclose(done, part * asked, atol=1e-7)


@given(seeds, strengths)
def test_one_limit_binds_wherever_less_than_all_is_done(seed, strength):
    case = Case(seed, strength)
    tau, binding = case.solve()
    whole = np.allclose(tau, case.M @ case.vdot + case.bias, rtol=1e-9, atol=1e-9)
    assert binding.sum() == (0 if whole else 1)


@pytest.mark.parametrize(("kind", "row"), [("position", 0), ("velocity", 1), ("torque", 2)])
@pytest.mark.parametrize("joint", range(7))
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_binding_limit_is_named(kind, row, joint, sign):
    q, v = (LIMITS.lower + LIMITS.upper) / 2, np.zeros(7)
    vdot = np.zeros(7)
    if kind == "position":
        q[joint] = LIMITS.upper[joint] if sign > 0 else LIMITS.lower[joint]
        vdot[joint] = sign
    elif kind == "velocity":
        v[joint] = sign * SPEED_SHARE * LIMITS.speed[joint]
        vdot[joint] = sign
    M, bias = np.eye(7), np.zeros(7)
    if kind == "torque":
        M *= 100.0
        vdot[joint] = sign * 10.0
    binding = limited_torque(vdot, M, bias, q, v, LIMITS)[7:].reshape(3, 7)
    assert binding[row, joint] == 1.0 and binding.sum() == 1.0


@given(seeds, st.floats(0.0, 50.0))
def test_a_scaled_motion_keeps_speeds_and_what_is_left_of_the_range(seed, speed):
    rng = np.random.default_rng(seed)
    q, v = rng.uniform(LIMITS.lower, LIMITS.upper), speed * rng.normal(size=7)
    scale = motion_scale(v, q, LIMITS)
    assert 0.0 <= scale <= 1.0
    allowed = np.minimum(
        MOTION_SHARE * LIMITS.speed,
        APPROACH_RATE * np.where(v > 0.0, LIMITS.upper - q, q - LIMITS.lower),
    )
    assert (np.abs(scale * v) <= allowed * (1 + 1e-12)).all()
    # The largest such scale.
    assert scale == 1.0 or np.isclose(np.abs(scale * v) / allowed, 1.0).any()


def test_info_tells_how_limits_slowed_the_arm(make):
    env: ToolUseEnv = make()
    _, info = env.reset(seed=0)
    assert info["limits"]["motion_scale"] == 1.0
    assert not any(info["limits"][f"{kind}_s"].any() for kind in ("position", "velocity", "torque"))
    *_, info = env.step(np.zeros(6, np.float32))
    assert info["limits"]["motion_scale"] == 1.0
    turn = np.array([0, 0, 0, 0, 0, 1.0], np.float32)  # joint 7 reaches the end of its range
    for _ in range(12):
        *_, info = env.step(turn)
    assert info["limits"]["motion_scale"] < 0.1
    assert info["limits"]["position_s"][6] > 0.0
    assert info["limits"]["position_s"].sum() <= 1 / 6 + 0.004
