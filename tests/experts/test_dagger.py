"""A learner and the expert take turns; what the expert would do is stored, and learned."""

from dataclasses import replace

import numpy as np
import pytest

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.experts.dagger import DAggerPolicy
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import first_difference
from fleet_tools.rollouts.imitation import EXPERT_ACTIONS, LEARNER_STEPS, Labels
from fleet_tools.rollouts.rollout import rollout

ACTION = [0.5, -1.0, 1.0, 0.0, 0.25, -0.125]


class Straying:
    """A learner that drifts sideways."""

    def reset(self) -> None:
        """Has nothing to forget."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns always the same action."""
        return np.array([0.1, 0.1, 0.0, 0.0, 0.0, 0.0], np.float32)


@pytest.fixture(scope="module", name="env")
def _env():
    env = EnvSpec.of(task="hammer").make_tool_use()
    yield env
    env.close()


def test_the_learner_acts_in_its_steps_and_the_expert_in_all_others(env):
    policy = DAggerPolicy(env, Straying())
    episode = rollout(env, policy, seed=3)
    labels = Labels.of(episode.info, len(episode.actions))
    steps = set(labels.learner_steps)
    assert 0 < len(steps) < len(episode.actions)
    straying = Straying().act({})
    for step, action in enumerate(episode.actions):
        assert np.array_equal(action, straying) == (step in steps)
    again = rollout(env, DAggerPolicy(env, Straying()), seed=3)
    assert again.info[EXPERT_ACTIONS] == episode.info[EXPERT_ACTIONS]
    repeated = rollout(env, StoredActions(episode.actions), scene=episode.scene)
    assert first_difference(episode, repeated) is None


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_a_learner_on_the_way_of_the_expert_is_told_to_go_on(env, speed):
    class OnTheWay(ExpertPolicy):
        """An expert that goes no faster than another, and waits for itself."""

        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            """Returns a part of the expert's action."""
            self.yield_step()
            return (speed * super().act(observation)).astype(np.float32)

    alone = rollout(env, ExpertPolicy(env), seed=5)
    both = rollout(env, DAggerPolicy(env, OnTheWay(env)), seed=5)
    assert both.outcome == "success"
    labels = Labels.of(both.info, len(both.actions))
    executed = both.actions[list(labels.learner_steps)]
    told = np.array(labels.expert_actions)
    free = slice(0, 5)  # before the tool touches anything
    np.testing.assert_allclose(executed[free], speed * told[free], atol=0.03)
    # Not faster than by itself: nobody is told to make up for lost time.
    assert np.linalg.norm(told[free], axis=1).max() < 1.05 * _fastest(alone.actions)


def _fastest(actions: np.ndarray) -> float:
    return float(np.linalg.norm(actions, axis=1).max())


def test_the_experts_action_does_not_depend_on_how_long_the_learner_stays(env):
    observation, _ = env.reset(seed=2)
    expert = ExpertPolicy(env)
    expert.reset()
    actions = []
    for _ in range(6):
        actions.append(expert.act(observation))
        expert.yield_step()
    assert np.ptp(actions, axis=0).max() < 1e-6
    assert np.abs(actions[0]).max() > 0.01
    followed = ExpertPolicy(env)
    followed.reset()
    in_time = [followed.act(observation) for _ in range(6)]
    assert np.ptp(in_time, axis=0).max() > 0.1


def test_trajectories_imitate_the_expert_where_the_learner_acted(tmp_path):
    pytest.importorskip("torch")
    from support.training_cases import cloned, small_data

    from fleet_tools.baselines.training.trajectories import Trajectories

    samples = small_data(tmp_path / "data")
    blueprint, plain, _ = cloned(samples)
    corrected = samples.subset(range(len(samples.episodes)))
    info = {LEARNER_STEPS: [0, 2], EXPERT_ACTIONS: [ACTION, ACTION]}
    corrected.episodes = tuple(
        replace(each, record=each.record.model_copy(update={"info": info}))
        if each.record.attempt == 2
        else each
        for each in samples.episodes
    )
    trajectories = Trajectories(corrected, blueprint)
    items = np.arange(len(plain.lengths))
    before, after = plain.batch(items), trajectories.batch(items)
    changed = (before.actions != after.actions).flatten(2).any(-1) & before.mask
    row = [each.record.attempt for each in samples.episodes if each.record.steps].index(2)
    assert changed.nonzero().tolist() == [[row, 0], [row, 2]]
    assert after.actions[row, 2, 0].tolist() == ACTION
    assert trajectories.steps == plain.steps
