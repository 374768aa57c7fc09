"""Smaller time steps with the same controller: what changes, and what does not."""

import numpy as np
import pytest
from support.environments import press
from verdicts import compared

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.sim.simulation import Simulation

DOWN_AND_TURN = np.array([0.0, 0.3, -0.5, 0.0, 0.0, 0.2], np.float32)


def hammer(substeps: int, **kwargs: object) -> ToolUseEnv:
    env = EnvSpec.of(task="hammer", **kwargs).make_tool_use()
    env._viewed.substeps = substeps
    env.reset(seed=3)
    return env


def torques(env: ToolUseEnv, actions: list[np.ndarray]) -> list[tuple[float, bytes]]:
    """Returns the time and the motors' torques of every time step."""
    found: list[tuple[float, bytes]] = []

    def watch(simulation: Simulation) -> None:
        world, root = simulation.world, simulation._root
        port = world.plant.get_net_actuation_output_port(world.arm)
        found.append((root.get_time(), port.Eval(simulation._context).tobytes()))

    for action in actions:
        simulation = env.simulation
        assert simulation is not None
        simulation.step(action * env.action_scale, watch)
    return found


@pytest.mark.parametrize("substeps", [2, 3, 4])
def test_torques_change_once_in_a_period_of_the_controller(substeps: int):
    found = torques(hammer(substeps), [DOWN_AND_TURN] * 3)
    periods: dict[int, set[bytes]] = {}
    for time, torque in found:
        periods.setdefault(int(time / TIME_STEP + 1e-6), set()).add(torque)
    assert all(len(within) == 1 for within in periods.values())
    assert len(set().union(*periods.values())) > 100  # 126 in half a second


@pytest.mark.parametrize("substeps", [2, 4])
def test_free_motion_stays_the_same_to_a_tenth_of_a_millimetre(substeps: int):
    """With a controller at the rate of the dynamics it would be up to 2 mm after two seconds."""
    coarse, fine = hammer(1), hammer(substeps)
    for k in range(1, 13):
        states = []
        for env in (coarse, fine):
            env.step(DOWN_AND_TURN)
            states.append(env.world_state())
        assert states[0].time == k / 6
        assert k / 6 - TIME_STEP / 2 / substeps <= states[1].time <= k / 6
        one, two = (state.X_WE.translation() for state in states)
        assert np.linalg.norm(one - two) < 1.5e-4


def test_control_steps_end_with_the_same_period_of_the_controller():
    """The end of a control step is in the middle of a period; both make the whole of it."""
    counts = []
    for substeps in (1, 3):
        env = hammer(substeps)
        simulation = env.simulation
        assert simulation is not None
        updates = [simulation._simulator.get_num_discrete_updates()]
        for _ in range(6):
            env.step(DOWN_AND_TURN)
            updates.append(simulation._simulator.get_num_discrete_updates())
        counts.append(np.diff(updates))
    assert set(counts[0]) == {41, 42}
    np.testing.assert_array_equal(counts[1], 3 * counts[0])


def test_a_state_with_substeps_continues_bit_for_bit():
    env = hammer(3)
    for _ in range(8):
        env.step(press(env))
    state, actions = env.get_state(), [press(env), DOWN_AND_TURN, -DOWN_AND_TURN]
    digests = [env.step(action) and env.state_digest() for action in actions]
    env.reset(seed=5)
    env.set_state(state)
    assert [env.step(action) and env.state_digest() for action in actions] == digests


@pytest.mark.parametrize("substeps", [2, 4])
def test_peaks_are_of_four_milliseconds_at_every_step(substeps: int):
    """So the mean is at most the peak, and a force that lasts is the same at every step."""
    pressed = []
    for env in (hammer(1), hammer(substeps)):
        while not env.contact_metrics().object.contact_s:
            env.step(press(env))
        before = env.contact_metrics().object
        for _ in range(3):
            env.step(press(env))
        after = env.contact_metrics().object
        assert after.contact_s / TIME_STEP == pytest.approx(round(after.contact_s / TIME_STEP))
        seconds = after.contact_s - before.contact_s
        pressed.append((after.impulse_Ns - before.impulse_Ns) / seconds)
        assert after.mean_N <= after.peak_N
    assert pressed[0] == pytest.approx(pressed[1], rel=0.05) and pressed[0] > 5.0


def test_comparison_counts_verdicts_steps_distances_and_forces():
    facts = {"task": "hammer", "split": "train", "index": 0, "seed": 1, "seconds": 0.0}

    def end(success: bool, x: float, force: float) -> EpisodeResult:
        outcome = "success" if success else "time_limit"
        load = {"peak_N": force, "impulse_Ns": force / 2, "contact_s": 1.0}
        found = {
            "outcome": outcome,
            "success": success,
            "success_once": True,
            "steps": 0,
            "final_points_m": {"end_effector": ((x, 0.0, 0.0),)},
            "contact_metrics": {"object": load, "time_s": 1.0},
        }
        return EpisodeResult.model_validate(facts | found)

    reference = [end(True, 0.0, 10.0), end(True, 0.0, 0.1), end(True, 0.0, 400.0)]
    ends = [end(True, 1e-3, 9.0), end(False, 3e-3, 5.0), end(True, 0.0, 500)]
    limits = load_task("hammer").gentle
    found = compared(reference, ends, limits)
    assert (found["successes"], found["other_verdict"]) == (2, 1)
    assert found["near_the_edge"] == ["train 0"]
    assert found["other_gentleness"] == 2  # one fails, and one is above the limit
    assert found["moved_m"] == pytest.approx([1e-3, 3e-3])
    changes = found["force_changes"]
    assert changes["object_peak_N"] == pytest.approx([0.075, 0.25])  # nobody compares 0.1 N
    assert changes["object_mean_N"] == pytest.approx([0.075, 0.25])
    assert changes["table_peak_N"] is None
    assert compared(reference, reference, limits)["other_verdict"] == 0
