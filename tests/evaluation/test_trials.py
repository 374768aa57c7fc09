"""Trials in the simulator: the same in every order, and again without the policy."""

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import stateful_policies
from support.evaluated import SMALL, TRIALS, FaultyPolicy, a_result, failing_factory, without_times

from fleet_tools.envs.array_spec import ACTION_STEPS
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import (
    OrderDependenceError,
    PolicyError,
    ResultError,
    SimulationError,
)
from fleet_tools.evaluation import trial as trials
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Trial
from fleet_tools.evaluation.result import EpisodeResult, decode_actions, encode_actions
from fleet_tools.evaluation.run import describe
from fleet_tools.evaluation.trial import (
    Rerun,
    judge,
    make_trials,
    require_same_versions,
    run_again,
    run_trial,
)
from fleet_tools.policies.policy import GuardedPolicy, RandomPolicy, ZeroPolicy
from fleet_tools.policies.sources import Track, find_policy
from fleet_tools.rollouts.agreement import REPEAT, Agreement
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.storage.provenance import installed_packages

HAMMER = TRIALS[0]
UNSEEN = SMALL.trials("hammer", "unseen_tools")[0]

IDENTICAL = Rerun((), Agreement(identical=True, same_outcome=True, distance_m=0.0))

RunTrial = Callable[[Trial], EpisodeResult]


@pytest.fixture(name="run", scope="module")
def _run() -> RunTrial:
    """A function that runs trials with the random policy, made as in another process."""
    random = find_policy("random")
    result = a_result(policy=PolicyProvenance.of(random), packages=installed_packages())
    return pickle.loads(pickle.dumps(partial(make_trials, result, random)))()


@pytest.fixture(name="episode", scope="module")
def _episode(run: RunTrial) -> EpisodeResult:
    return run(UNSEEN)


def error_of(episode: EpisodeResult) -> str:
    """Returns the message of an episode that ended by an error."""
    assert episode.error is not None
    return episode.error


def test_a_trial_is_the_episode_of_its_seed_and_split(episode):
    env = gymnasium.make("FleetTools/Hammer-v0", split="unseen_tools")
    direct = rollout(env, RandomPolicy(env, UNSEEN.seed), seed=UNSEEN.seed)
    assert direct.scene.digest() == episode.scene_digest
    assert direct.final_digest == episode.state_digest
    assert decode_actions(episode.actions).tobytes() == direct.actions.tobytes()
    assert episode.tool in unwrap(env).task.held_out.tools


def test_a_trial_does_not_depend_on_the_trial_before(run, episode):
    run(HAMMER)
    assert without_times(run(UNSEEN)) == without_times(episode)


def test_an_episode_is_verified_without_its_policy(make, episode):
    env = make(split="train")  # the trial's scene replaces the one that the environment draws
    assert judge(episode, run_again(env, SMALL, episode)) == IDENTICAL
    actions = decode_actions(episode.actions)
    actions[10, 2] -= np.sign(actions[10, 2]) / ACTION_STEPS
    changed = episode.model_copy(update={"actions": encode_actions(actions)})
    verdict = judge(changed, run_again(env, SMALL, changed))
    digest, apart = verdict.differences
    assert digest.startswith("state_digest: ") and apart.endswith(" m apart")
    assert verdict.agreement.within(0.001) and not verdict.agreement.identical
    older = changed.model_copy(update={"final_points_m": None})
    assert judge(older, run_again(env, SMALL, older)).agreement == Agreement(
        identical=False, same_outcome=True, distance_m=None
    )
    forged = episode.model_copy(update={"success_once": not episode.success_once})
    verdict = judge(forged, run_again(env, SMALL, forged))
    assert verdict.differences == ("success_once: True in the file, False here",)
    assert not verdict.agreement.same_outcome
    claimed = episode.model_copy(update={"outcome": "worker_error"})
    assert not judge(claimed, run_again(env, SMALL, claimed)).agreement.same_outcome


def test_an_error_of_a_policy_ends_its_own_episode(hammer):
    policy = GuardedPolicy(lambda: FaultyPolicy(hammer))
    episodes = [run_trial(hammer, policy, SMALL, trial) for trial in TRIALS[:4]]
    assert [episode.outcome for episode in episodes] == ["policy_error"] * 4
    for episode, message in zip(
        episodes,
        (
            "PolicyError: act raised at evaluated.py:",
            "InvalidActionError: Expected an action of finite numbers",
            "InvalidActionError: Expected an action of shape (6,)",
            "InvalidActionError: Expected an action of shape (6,) with floating-point or integer",
        ),
        strict=True,
    ):
        assert error_of(episode).startswith(message)
        assert "info_error" in episode.info
        seconds = episode.info["policy_seconds"]
        assert isinstance(seconds, float)
        assert 0 < seconds < episode.seconds + 1
    exiting = HAMMER.model_copy(update={"seed": HAMMER.seed + FaultyPolicy.FAULTS.index("exit")})
    assert "SystemExit" in error_of(run_trial(hammer, policy, SMALL, exiting))


def test_the_steps_before_an_error_are_kept_and_verified(hammer):
    class ShortPolicy(ZeroPolicy):
        """A policy that raises an error after three steps."""

        remaining = 3

        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            self.remaining -= 1
            return super().act(observation) if self.remaining >= 0 else {}["absent"]

    policy = GuardedPolicy(lambda: ShortPolicy(hammer))
    episode = run_trial(hammer, policy, SMALL, HAMMER)
    assert (episode.outcome, episode.steps) == ("policy_error", 3)
    assert "KeyError: 'absent'" in error_of(episode)
    assert judge(episode, run_again(hammer, SMALL, episode)) == IDENTICAL


def test_a_policy_that_could_not_be_made_is_made_at_the_next_reset(hammer):
    calls: list[None] = []

    def factory() -> ZeroPolicy:
        calls.append(None)
        return failing_factory(hammer) if len(calls) == 1 else ZeroPolicy(hammer)

    policy = GuardedPolicy(factory)
    with pytest.raises(PolicyError, match=r"making it raised at evaluated.py:\d+: MemoryError"):
        policy.reset()
    policy.reset()
    policy.reset()
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(SimulationError("diverged"), "simulation_error"), (KeyError("defect"), "worker_error")],
)
def test_other_errors_are_not_counted_as_the_policys(hammer, monkeypatch, error, outcome):
    def failing_rollout(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(trials, "rollout", failing_rollout)
    episode = run_trial(hammer, ZeroPolicy(hammer), SMALL, HAMMER)
    assert (episode.outcome, episode.success, episode.steps) == (outcome, False, 0)
    assert episode.scene_digest is not None


def test_other_versions_or_task_files_are_refused():
    result = a_result(packages=installed_packages())
    require_same_versions(result)
    with pytest.raises(ResultError, match="fleet_tools 0, here"):
        require_same_versions(a_result(packages={"fleet_tools": "0"}))
    with pytest.raises(ResultError, match="the task hammer 0, here"):
        require_same_versions(
            result.model_copy(update={"task_digests": result.task_digests | {"hammer": "0"}})
        )


def test_the_provenance_of_a_policy_follows_from_its_source():
    zero = PolicyProvenance.of(find_policy("zero"), name="nothing at all")
    assert (zero.name, zero.kind, zero.content_digest) == ("nothing at all", "built_in", None)
    faulty = PolicyProvenance.of(find_policy("support.evaluated:FaultyPolicy"), obs_mode="state")
    assert (faulty.name, faulty.kind) == ("support.evaluated:FaultyPolicy", "factory")
    assert faulty.env_kwargs == {"obs_mode": "state"}
    failing = PolicyProvenance.of(find_policy("support.evaluated:failing_factory"))
    assert faulty.content_digest == failing.content_digest


def trials_of(name: str, track: Track = "privileged") -> RunTrial:
    source = find_policy(f"support.stateful_policies:{name}")
    provenance = PolicyProvenance.of(source, track=track)
    return make_trials(a_result(policy=provenance, packages=installed_packages()), source)


@pytest.mark.parametrize("name", [each.__name__ for each in stateful_policies.STATEFUL])
def test_a_policy_that_keeps_something_does_not_repeat_its_first_episode(name):
    run = trials_of(name)
    for trial in (HAMMER, UNSEEN):
        run(trial)
    message = (
        rf"stateful_policies:{name} does not repeat its actions: episode 0 of hammer, train, .* "
        rf"differs from step [0-{stateful_policies.STEPS - 1}] on .*`reset\(self, seed=0\)`"
    )
    with pytest.raises(OrderDependenceError, match=message):
        run(REPEAT)


@pytest.mark.parametrize("track", ["privileged", "observations"])
@pytest.mark.parametrize("name", ["Forgetful", "Seeded"])
def test_a_policy_that_forgets_has_the_same_episodes_in_every_order(name, track):
    run, other = trials_of(name, track), trials_of(name, "privileged")
    run(REPEAT)  # nothing yet
    there = [run(trial) for trial in TRIALS[:3]]
    here = [other(trial) for trial in TRIALS[2::-1]][::-1]
    run(REPEAT)
    assert [*map(without_times, there)] == [*map(without_times, here)]
    assert len({episode.actions for episode in there}) == 3


def test_the_order_of_trials_tells_code_of_others_nothing():
    orders = {}
    for policy in ("support.stateful_policies:Forgetful", "zero"):
        config = EvaluationConfig(policy=policy, tool="hammer")
        trials = describe(config)[2]
        orders[policy] = [trial.key for trial in trials]
    theirs, ours = orders.values()
    assert theirs != ours and sorted(theirs) == sorted(ours)


def test_policies_in_other_processes_are_made_alike():
    episodes = [without_times(trials_of("OfProcess", "observations")(HAMMER)) for _ in range(2)]
    assert episodes[0].steps == stateful_policies.STEPS
    assert episodes[0] == episodes[1]
