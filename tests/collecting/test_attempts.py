"""The unit of collecting, without any program and without Ray."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.dataset import attempts, episode_file
from fleet_tools.dataset.attempts import (
    attempt_episode,
    collect_episode,
    make_attempts,
    scene_seed,
)
from fleet_tools.dataset.header import describe
from fleet_tools.errors import ConfigError, DatasetError, SimulationError, UnknownNameError
from fleet_tools.policies.sources import find
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import first_difference
from fleet_tools.sim.seeds import TRAINING

EXPERT = find("expert")
SEEDS = st.integers(0, 2**32)


@pytest.fixture(name="header", scope="module")
def _header():
    env = make_environment(task="hammer")
    return describe(env, "hammer", policy="expert", seed=3, keep_failures=False)


@given(SEEDS, SEEDS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_attempts_of_all_data_sets_have_scenes_of_their_own(seed, other_seed, k, other_k):
    drawn = scene_seed(seed, k)
    assert drawn == scene_seed(seed, k)
    assert drawn in TRAINING
    if (seed, k) != (other_seed, other_k):
        assert drawn != scene_seed(other_seed, other_k)


def test_neighbouring_data_sets_share_no_scene():
    seeds = {scene_seed(seed, k) for seed in range(20) for k in range(500)}
    assert len(seeds) == 20 * 500


def test_unknown_policy_is_named():
    with pytest.raises(UnknownNameError, match="did you mean 'expert'"):
        collect_episode("hammer", 0, policy="exprt")


def test_an_attempt_is_an_episode_of_its_seed(header, tmp_path):
    record, content = make_attempts(header, EXPERT, verify=True)(5)
    assert (record.attempt, record.seed) == (5, scene_seed(3, 5))
    assert record.success
    assert record.verified
    (tmp_path / "episode").write_bytes(content)
    stored = episode_file.read(tmp_path / "episode")
    assert first_difference(stored, collect_episode("hammer", record.seed)) is None
    assert record.steps == len(stored)


def test_what_does_not_come_out_again_does_not_count(header, monkeypatch):
    def otherwise(env, policy, *, seed=None, scene=None):
        episode = rollout(env, policy, seed=seed, scene=scene)
        return episode if scene is None else replace(episode, rewards=episode.rewards + 1)

    rollout = attempts.rollout
    monkeypatch.setattr(attempts, "rollout", otherwise)
    record, content = make_attempts(header, EXPERT, verify=True)(0)
    assert (record.outcome, record.success, record.verified) == ("not_reproducible", False, False)
    assert record.error == "run again, it differs from step 1 on: rewards"
    assert content is None


def test_other_versions_on_a_worker_are_refused(header):
    packages = header.packages | {"drake": "1.0"}
    with pytest.raises(DatasetError, match="Install the same"):
        make_attempts(header.model_copy(update={"packages": packages}), EXPERT, verify=False)


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (SimulationError("The solver failed."), "simulation_error", "The solver failed."),
        (ZeroDivisionError("by zero"), "worker_error", "ZeroDivisionError: by zero"),
    ],
)
def test_what_goes_wrong_costs_its_own_attempt(error, outcome, said):
    def fails(seed):
        raise error

    record, episode = attempt_episode(7, 2, fails)
    assert episode is None
    assert (record.outcome, record.error, record.steps) == (outcome, said, 0)
    assert record.seed == scene_seed(7, 2)


def test_what_is_wrong_with_every_attempt_is_raised():
    def fails(seed):
        raise ConfigError("No such camera.")

    with pytest.raises(ConfigError):
        attempt_episode(7, 2, fails)


def test_actions_are_those_of_the_scene(header):
    first, again = (make_attempts(header, EXPERT, verify=False)(1)[1] for _ in range(2))
    assert first == again
    assert np.frombuffer(first[:4], np.uint8)[1:].tobytes() == b"HDF"
