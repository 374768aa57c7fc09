"""Trials in the simulator: the same wherever they are made, and again without their policy."""

import gymnasium
import numpy as np
import pytest
from evaluated import SMALL, TRIALS, Misbehaving, a_result, unmade

from fleet_tools.dataset.header import installed_packages
from fleet_tools.dataset.reader import last_digest
from fleet_tools.errors import PolicyError, ResultError, SimulationError
from fleet_tools.evaluation import trial as trials
from fleet_tools.evaluation.identity import identify
from fleet_tools.evaluation.result import decode_actions, encode_actions
from fleet_tools.evaluation.trial import make_trials, require_same_here, rerun, run_trial
from fleet_tools.policies.guarded import GuardedPolicy
from fleet_tools.policies.sources import find
from fleet_tools.policies.trivial import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.episode import rollout

HAMMER = TRIALS[0]
UNSEEN = SMALL.trials("hammer", "unseen_tools")[0]


def timeless(episode):
    return episode.model_copy(update={"seconds": 0.0, "info": {}})


@pytest.fixture(name="run", scope="module")
def _run():
    """Runs the random policy."""
    result = a_result(policy=identify(find("random")), packages=installed_packages())
    return make_trials(result, find("random"))


@pytest.fixture(name="episode", scope="module")
def _episode(run):
    return run(UNSEEN)


def test_a_trial_is_the_episode_of_its_seed_and_split(episode):
    env = gymnasium.make("FleetTools/Hammer-v0", split="unseen_tools")
    direct = rollout(env, RandomPolicy(env, UNSEEN.seed), seed=UNSEEN.seed)
    assert direct.scene.digest() == episode.scene_digest
    assert last_digest(direct) == episode.state_digest
    assert decode_actions(episode.actions).tobytes() == direct.actions.tobytes()
    assert episode.tool in env.unwrapped.task.held_out.tools


def test_it_does_not_depend_on_what_was_run_before(run, episode):
    run(HAMMER)
    assert timeless(run(UNSEEN)) == timeless(episode)


def test_an_episode_runs_again_without_its_policy(make, episode):
    env = make(split="train")  # whatever the environment draws itself
    assert rerun(env, SMALL, episode) == []
    actions = decode_actions(episode.actions)
    actions[10, 2] = np.nextafter(actions[10, 2], np.float32(0))
    forged = episode.model_copy(update={"actions": encode_actions(actions)})
    (said,) = rerun(env, SMALL, forged)
    assert said.startswith("state_digest: ")
    boasted = episode.model_copy(update={"success_once": True})
    assert rerun(env, SMALL, boasted) == ["success_once: True in the file, False here"]


def test_what_a_policy_raises_costs_its_own_episode(make):
    env = make()
    policy = GuardedPolicy(lambda: Misbehaving(env))
    came = [run_trial(env, policy, SMALL, trial) for trial in TRIALS[:4]]
    assert [episode.outcome for episode in came] == ["policy_error"] * 4
    for episode, said in zip(
        came,
        (
            "PolicyError: act raised at evaluated.py:",
            "InvalidActionError: An action must be finite",
            "InvalidActionError: An action has shape (6,)",
            "InvalidActionError: An action has shape (6,) and a floating-point dtype",
        ),
        strict=True,
    ):
        assert episode.error.startswith(said)
        assert "info_error" in episode.info
        assert 0 < episode.info["policy_seconds"] < episode.seconds + 1
    leaving = HAMMER.model_copy(update={"seed": HAMMER.seed + 4})
    assert "SystemExit" in run_trial(env, policy, SMALL, leaving).error


def test_the_steps_before_an_error_are_kept_and_run_again(make):
    env = make()

    class Tired(ZeroPolicy):
        left = 3

        def act(self, observation):
            self.left -= 1
            return super().act(observation) if self.left >= 0 else {}["nothing"]

    episode = run_trial(env, GuardedPolicy(lambda: Tired(env)), SMALL, HAMMER)
    assert (episode.outcome, episode.steps) == ("policy_error", 3)
    assert "KeyError: 'nothing'" in episode.error
    assert rerun(env, SMALL, episode) == []


def test_a_policy_that_cannot_be_made_is_asked_again(make):
    env = make()
    made = []

    def reluctant():
        made.append(None)
        return unmade(env) if len(made) == 1 else ZeroPolicy(env)

    policy = GuardedPolicy(reluctant)
    with pytest.raises(PolicyError, match=r"making it raised at evaluated.py:\d+: MemoryError"):
        policy.reset()
    policy.reset()
    policy.reset()
    assert len(made) == 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(SimulationError("diverged"), "simulation_error"), (KeyError("ours"), "worker_error")],
)
def test_what_fails_beside_the_policy_is_not_its_fault(make, monkeypatch, error, outcome):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(trials, "rollout", fails)
    episode = run_trial(make(), None, SMALL, HAMMER)
    assert (episode.outcome, episode.success, episode.steps) == (outcome, False, 0)
    assert episode.scene_digest is not None


def test_other_versions_or_task_files_are_refused():
    result = a_result(packages=installed_packages())
    require_same_here(result)
    with pytest.raises(ResultError, match="fleet_tools 0, here"):
        require_same_here(a_result(packages={"fleet_tools": "0"}))
    with pytest.raises(ResultError, match="the task hammer 0, here"):
        require_same_here(
            result.model_copy(update={"task_digests": result.task_digests | {"hammer": "0"}})
        )


def test_policies_are_named_by_what_they_are():
    zero = identify(find("zero"), name="nothing at all")
    assert (zero.name, zero.kind, zero.content_digest) == ("nothing at all", "built_in", None)
    outside = identify(find("evaluated:Misbehaving"), obs_mode="state")
    assert (outside.name, outside.kind) == ("evaluated:Misbehaving", "factory")
    assert outside.environment == {"obs_mode": "state"}
    assert outside.content_digest == identify(find("evaluated:unmade")).content_digest
