"""The expert with noise in its actions, and its return to the task."""

import numpy as np
import pytest

from fleet_tools.experts.noise_injection import (
    MAX_DEVIATION,
    NOISE_PROBABILITY,
    NoisyExpert,
)
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import NOISE_STEPS, Labels
from fleet_tools.rollouts.rollout import rollout


class RecordingExpert(ExpertPolicy):
    """An expert that keeps its actions, before noise is added to them."""

    def reset(self) -> None:
        super().reset()
        self.intended: list[np.ndarray] = []

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        self.intended.append(super().act(observation))
        return self.intended[-1]


def test_actions_differ_from_the_intended_ones_in_the_listed_steps_only(make):
    env = make("FleetTools/Hammer-v0")
    fractions = []
    for seed in range(3):
        policy = NoisyExpert(env)
        policy._expert = expert = RecordingExpert(env)
        episode = rollout(env, policy, seed=seed)
        listed = list(Labels.of(episode.info, len(episode.actions)).noise_steps)
        differing = (episode.actions != np.array(expert.intended)).any(axis=1)
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
