"""How a task was handled: laws of mechanics, and policies that would pass for gentle."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gentle_limits import LEAST, rounded_up
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.environments import press

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import GentleLimits, load_task, task_names
from fleet_tools.envs.contact_metrics import UNTOUCHED, ContactMetrics, Load, is_gentle
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.osc import external_wrench
from fleet_tools.sim.simulation import Simulation

G = 9.81
STILL = np.zeros(6, np.float32)
numbers = st.floats(0, 1e3)


def expert_acts(env: ToolUseEnv) -> dict[str, Any]:
    """Lets the expert finish the present episode; returns the last `info`."""
    expert, info = ExpertPolicy(env), {}
    expert.reset()
    while env.get_state().outcome == "running":
        *_, info = env.step(expert.act({}))
    return info


def down(env: ToolUseEnv, part: float, aside: float = 0.0) -> np.ndarray:
    """Returns the action that moves the hand down and aside, in parts of the bounds."""
    R_EW = env.world_state().X_WE.rotation().inverse()
    motion = R_EW @ np.array([0.0, aside, -part])
    return np.concatenate([motion, np.zeros(3)]).astype(np.float32)


def lower_to_table(env: ToolUseEnv) -> None:
    """Moves the hand down until the tool lies on the table, away from the object."""
    for _ in range(8):
        env.step(down(env, 0.0, aside=-1.0))
    for _ in range(60):
        env.step(down(env, 0.5))
        if env.contact_metrics().table.contact_s > 0.2:
            return
    raise AssertionError("the tool never reached the table")


@pytest.fixture(scope="module", name="spatula")
def _spatula(make):
    return make("FleetTools/Spatula-v0", tool="turner", object="brownie")


@pytest.fixture(scope="module", name="hammer")
def _hammer(make):
    return make("FleetTools/Hammer-v0", tool="claw", object="round_nail")


@pytest.fixture(scope="module", name="lifted")
def _lifted(spatula):
    """The state after the expert's episode, with the slab on the blade."""
    spatula.reset(seed=1)
    assert expert_acts(spatula)["outcome"] == "success"
    return spatula.get_state()


# --- Laws of mechanics ------------------------------------------------------------------------


def test_a_slab_that_rests_on_the_blade_loads_it_with_its_weight(spatula, lifted):
    spatula.set_state(lifted)
    simulation = spatula.simulation
    for _ in range(12):
        simulation.step(STILL)
    done = simulation.world_state().hand_forces
    weight = simulation.world.plant.GetBodyByName("slab").get_mass(simulation._context) * G
    assert done.object_peak_N == pytest.approx(weight, rel=5e-3)
    assert done.object_impulse_Ns == pytest.approx(weight * done.object_s, rel=2e-3)
    assert done.object_s == pytest.approx(1 / 6, abs=TIME_STEP)
    assert done[3:] == (0.0, 0.0, 0.0, 0.0)


def test_an_episode_of_doing_nothing_leaves_everything_untouched(hammer):
    _, info = hammer.reset(seed=1)
    for _ in range(4):
        *_, info = hammer.step(STILL)
    told = info["contact_metrics"]
    assert told.pop("time_s") == pytest.approx(4 / 6)
    assert told.pop("hand_path_m") < 1e-3 and not told.pop("gentle")
    assert set(told.values()) == {0.0}


@pytest.mark.parametrize("pushed", [False, True])
def test_forces_of_blows_are_those_of_contact_by_drake(hammer, pushed):
    """On a nail, Drake's contact forces fit the motion; a push of somebody else is no contact."""
    hammer.reset(seed=1)
    scene = hammer.scene
    if pushed:
        push = {"start_s": 0.0, "duration_s": 9.0, "force_N": (6.0, -4.0, 5.0)}
        scene = scene.model_dump() | {"hand_forces": [push]}
    hammer.reset(options={"scene": scene})
    plant, arm = hammer.simulation.world.plant, hammer.simulation.world.arm
    contact = plant.get_generalized_contact_forces_output_port(arm)
    seen: list[tuple[float, float]] = []

    def watch(simulation: Simulation) -> None:
        context = simulation._context
        q, v = plant.GetPositions(context, arm), plant.GetVelocities(context, arm)
        dynamics, _ = simulation.world.adjustable.arm_model.dynamics(q, v)
        F = external_wrench(dynamics.J, contact.Eval(context))
        seen.append((simulation._root.get_time(), float(np.linalg.norm(F[3:]))))

    with hammer.watched(watch):
        expert_acts(hammer)
    load = hammer.contact_metrics().object
    # Drake makes a step at each multiple of the time step, after this was seen.
    steps = {round(t / TIME_STEP): f for t, f in seen if abs(t / TIME_STEP % 1 - 0.5) > 0.499}
    forces = np.array(list(steps.values()))
    assert load.peak_N == pytest.approx(forces.max(), rel=1e-6)
    assert load.impulse_Ns == pytest.approx(forces.sum() * TIME_STEP, rel=1e-6)
    assert load.contact_s == pytest.approx(np.count_nonzero(forces) * TIME_STEP)
    assert hammer.contact_metrics().table == Load()


def test_a_pressed_table_is_told_from_the_object_and_takes_the_work_of_friction(spatula):
    """A force that leans by the angle of friction does mu / sqrt(1 + mu^2) F d along the table."""
    spatula.reset(seed=3)
    lower_to_table(spatula)
    before = spatula.contact_metrics()
    for _ in range(4):
        spatula.step(down(spatula, 0.1, aside=-1.0))
    slid = spatula.contact_metrics()
    assert slid.object == Load() and slid.table.peak_N > 1.0
    impulse = slid.table.impulse_Ns - before.table.impulse_Ns
    force = impulse / (slid.time_s - before.time_s)
    way = slid.hand_path_m - before.hand_path_m
    assert 0.1 < (slid.table_work_J - before.table_work_J) / (force * way) < 0.7


def test_forces_on_a_slab_fit_its_motion_while_the_blade_is_pressed_onto_the_table(spatula):
    """Drake's reported forces on the arm do not: this is why they are not used."""
    spatula.reset(seed=1)
    simulation = spatula.simulation
    world, plant, context = simulation.world, simulation.world.plant, simulation._context
    body = plant.GetBodyByName("slab")
    mass = body.get_mass(context)
    on_slab = plant.get_generalized_contact_forces_output_port(world.object)
    seen: list[tuple[float, np.ndarray, np.ndarray]] = []

    def watch(simulation: Simulation) -> None:
        v = body.CalcCenterOfMassTranslationalVelocityInWorld(context)
        seen.append((simulation._root.get_time(), v, on_slab.Eval(context)[3:]))

    expert = ExpertPolicy(spatula)
    expert.reset()
    with spatula.watched(watch):
        while spatula.contact_metrics().object.contact_s < 0.4:
            spatula.step(expert.act({}))
    assert spatula.contact_metrics().table.peak_N > 20.0
    # Between two multiples of the time step there is one step of the dynamics.
    whole = {
        k: each for t, *each in seen if abs(t - (k := round(t / TIME_STEP)) * TIME_STEP) < 1e-9
    }
    pairs = [(one, whole[k + 1]) for k, one in whole.items() if k + 1 in whole]
    needed = np.array([mass * (w - v) / TIME_STEP + [0, 0, mass * G] for (v, _), (w, _) in pairs])
    reported = np.array([F for (_, F), _ in pairs])
    assert len(pairs) > 300
    np.testing.assert_allclose(reported, needed, atol=0.02 * mass * G)


def test_values_grow_over_an_episode_and_the_way_is_at_least_the_distance(hammer):
    hammer.reset(seed=2)
    begin, so_far = hammer.world_state().X_WE.translation(), [hammer.contact_metrics()]
    for _ in range(12):
        hammer.step(press(hammer))
        so_far.append(hammer.contact_metrics())
    assert so_far[0] == UNTOUCHED
    for one, two in pairwise(so_far):
        assert two.time_s > one.time_s and two.hand_path_m >= one.hand_path_m
        assert two.object.peak_N >= one.object.peak_N >= one.object.mean_N
    way = np.linalg.norm(hammer.world_state().X_WE.translation() - begin)
    assert so_far[-1].hand_path_m >= way > 0.05


# --- Gentle success ---------------------------------------------------------------------------


def test_the_expert_is_gentle_and_one_that_slams_the_table_first_is_not(spatula, lifted):
    limits = spatula.task.gentle
    assert limits is not None and is_gentle(limits, True, lifted.contact_metrics)
    spatula.reset(seed=1)
    begin = spatula.get_state()
    for _ in range(30):
        spatula.step(down(spatula, 1.0))  # as fast as it can
        if spatula.contact_metrics().table_work_J > limits.table_work_J:
            break
    slammed = spatula.contact_metrics()
    assert slammed.table.peak_N > 100.0 and not is_gentle(limits, True, slammed)
    # The task is done as the expert does it, by somebody who slammed before.
    spatula.set_state(replace(begin, contact_metrics=slammed))
    info = expert_acts(spatula)
    assert info["outcome"] == "success" and not info["contact_metrics"]["gentle"]


def test_nothing_is_gentle_without_success(hammer):
    hammer.reset(seed=1)
    for action in (STILL, press(hammer), STILL):
        *_, info = hammer.step(action)
        assert not info["success"] and not info["contact_metrics"]["gentle"]


@pytest.mark.parametrize("limits, told", [("", False), ("gentle: null", None)])
def test_gentleness_is_told_of_a_users_own_task_with_limits(tmp_path, limits, told):
    file = tmp_path / "own.yaml"
    file.write_text(f"extends: hammer\nname: own\n{limits}\n")
    _, info = EnvSpec.of(task=str(file)).make_tool_use().reset(seed=1)
    assert info["contact_metrics"].get("gentle") is told


def test_every_task_of_the_package_has_limits_of_which_none_is_below_what_is_always_gentle():
    for task in map(load_task, task_names()):
        for name, least in LEAST.items():
            assert getattr(task.gentle, name) >= least


@given(*[numbers] * 3, st.floats(1, 3))
def test_who_is_gentler_stays_gentle(peak, table, work, factor):
    limits = GentleLimits(object_peak_N=50, table_peak_N=20, table_work_J=5)

    def contact_metrics(scale: float) -> ContactMetrics:
        load, other = Load(peak_N=scale * peak), Load(peak_N=scale * table)
        return ContactMetrics(object=load, table=other, table_work_J=scale * work)

    first, second = (is_gentle(limits, True, contact_metrics(scale)) for scale in (1.0, factor))
    assert first is not None and second is not None and first >= second


# --- Values -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(numbers, numbers, st.floats(1e-3, 1)), min_size=1, max_size=6))
def test_loads_add_up_in_any_order(parts):
    def total(parts):
        load = Load()
        for peak, share, seconds in parts:
            load = load.and_then(peak, min(1.0, share) * peak * seconds, seconds)
        return load

    one, other = total(parts), total(parts[::-1])
    assert one.peak_N == other.peak_N == max(peak for peak, _, _ in parts)
    assert one.impulse_Ns == pytest.approx(other.impulse_Ns, abs=1e-9)
    assert one.mean_N <= one.peak_N * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize(
    "data",
    [
        {"object": {"peak_N": float("nan")}},
        {"table": {"peak_N": -1.0}},
        {"table_work_J": float("inf")},
        {"object": {"peak_N": 1.0, "impulse_Ns": 5.0, "contact_s": 1.0}, "time_s": 2.0},
        {"object": {"peak_N": 9.0, "impulse_Ns": 5.0, "contact_s": 1.0}, "time_s": 0.5},
        {"gentle": True},
    ],
)
def test_impossible_values_are_refused(data):
    with pytest.raises(ValidationError):
        ContactMetrics.model_validate(data)


@given(st.floats(1e-3, 1e4))
def test_limits_are_rounded_up_to_two_digits(value):
    rounded = rounded_up(value)
    assert value * (1 - 1e-9) <= rounded <= 1.1 * value + 1e-12
    assert float(f"{rounded:.2g}") == rounded
