"""Experts for demonstrations: turns with a learner, and noise; what is to be imitated is stored."""

from dataclasses import replace

import numpy as np
import pytest

from fleet_tools.envs.array_spec import check_action
from fleet_tools.experts.demonstrators import (
    MAX_DEVIATION,
    NOISE_PROBABILITY,
    DAggerPolicy,
    NoisyExpert,
)
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import (
    EXPERT_ACTIONS,
    LEARNER_STEPS,
    NOISE_STEPS,
    Labels,
    first_difference,
)
from fleet_tools.rollouts.rollout import rollout

ACTION = [0.5, -1.0, 1.0, 0.0, 0.25, -0.125]


class Straying:
    """A learner that drifts sideways."""

    def reset(self) -> None:
        """Has nothing to forget."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns always the same action."""
        return np.array([0.1, 0.1, 0.0, 0.0, 0.0, 0.0], np.float32)


def test_the_learner_acts_in_its_steps_and_the_expert_in_all_others(hammer):
    policy = DAggerPolicy(hammer, Straying())
    episode = rollout(hammer, policy, seed=3)
    labels = Labels.of(episode.info, len(episode.actions))
    steps = set(labels.learner_steps)
    assert 0 < len(steps) < len(episode.actions)
    straying, _ = check_action(Straying().act({}))
    for step, action in enumerate(episode.actions):
        assert np.array_equal(action, straying) == (step in steps)
    again = rollout(hammer, DAggerPolicy(hammer, Straying()), seed=3)
    assert again.info[EXPERT_ACTIONS] == episode.info[EXPERT_ACTIONS]
    repeated = rollout(hammer, StoredActions(episode.actions), scene=episode.scene)
    assert first_difference(episode, repeated) is None


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_a_learner_on_the_way_of_the_expert_is_told_to_go_on(hammer, speed):
    class OnTheWay(ExpertPolicy):
        """An expert that goes no faster than another, and waits for itself."""

        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            """Returns a part of the expert's action."""
            self.yield_step()
            return (speed * super().act(observation)).astype(np.float32)

    alone = rollout(hammer, ExpertPolicy(hammer), seed=5)
    both = rollout(hammer, DAggerPolicy(hammer, OnTheWay(hammer)), seed=5)
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


def test_the_experts_action_does_not_depend_on_how_long_the_learner_stays(hammer):
    observation, _ = hammer.reset(seed=2)
    expert = ExpertPolicy(hammer)
    expert.reset()
    actions = []
    for _ in range(6):
        actions.append(expert.act(observation))
        expert.yield_step()
    assert np.ptp(actions, axis=0).max() < 1e-6
    assert np.abs(actions[0]).max() > 0.01
    followed = ExpertPolicy(hammer)
    followed.reset()
    in_time = [followed.act(observation) for _ in range(6)]
    assert np.ptp(in_time, axis=0).max() > 0.1


def test_trajectories_imitate_the_expert_where_the_learner_acted(tmp_path):
    pytest.importorskip("torch")
    from support.training_cases import cloned, small_data

    from fleet_tools.baselines.training.demonstrations import Trajectories

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


class RecordingExpert(ExpertPolicy):
    """An expert that keeps its actions, before noise is added to them."""

    def reset(self) -> None:
        super().reset()
        self.intended: list[np.ndarray] = []

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        self.intended.append(super().act(observation))
        return self.intended[-1]


def test_actions_differ_from_the_intended_ones_in_the_listed_steps_only(hammer):
    fractions = []
    for seed in range(3):
        policy = NoisyExpert(hammer)
        policy._expert = expert = RecordingExpert(hammer)
        episode = rollout(hammer, policy, seed=seed)
        listed = list(Labels.of(episode.info, len(episode.actions)).noise_steps)
        intended = [check_action(action)[0] for action in expert.intended]
        differing = (episode.actions != np.array(intended)).any(axis=1)
        assert np.flatnonzero(differing).tolist() == listed
        noise = np.abs(episode.actions - np.array(expert.intended))
        assert noise[listed].max(initial=0) < 6 * MAX_DEVIATION
        assert episode.outcome == "success" and "plans" in episode.info
        fractions.append(differing.mean())
    assert np.mean(fractions) == pytest.approx(NOISE_PROBABILITY, abs=0.15)


def test_noise_follows_from_the_scene(hammer):
    policy = NoisyExpert(hammer)
    first = rollout(hammer, policy, seed=3)
    rollout(hammer, policy, seed=4)
    for expert in (policy, NoisyExpert(hammer)):
        again = rollout(hammer, expert, seed=3)
        np.testing.assert_array_equal(first.actions, again.actions)
        assert first.info[NOISE_STEPS] == again.info[NOISE_STEPS]
