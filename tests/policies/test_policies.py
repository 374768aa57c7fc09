"""Policies by name, by module:factory or by checkpoint, the same for all programs."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.environments import IDS
from support.evaluated import SMALL, FaultyPolicy, PresumptuousPolicy, a_result

from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.errors import PolicyError, UnknownNameError
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.trial import make_trials
from fleet_tools.policies.policy import RandomPolicy, ZeroPolicy
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.storage.provenance import installed_packages

MODULE = """
import numpy as np


class Constant:
    def __init__(self, env):
        self.info = {"steps": 0}

    def reset(self):
        pass

    def act(self, observation):
        return np.full(6, 0.25, np.float32)
"""


@pytest.fixture(name="constant")
def _constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a user's own module, `constant`."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "constant.py").write_text(MODULE)
    yield tmp_path / "constant.py"
    sys.modules.pop("constant", None)


@pytest.mark.parametrize(
    "source",
    [
        "noisy_expert",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("support.collected:expert", "perceived_expert", "random")
        ),
    ],
)
def test_an_episode_is_the_same_in_collection_and_evaluation(source):
    (trial,) = SMALL.trials("hammer", "train", 1)
    policy = find_policy(source)
    provenance = PolicyProvenance.of(policy, track="privileged")
    result = a_result(policy=provenance, packages=installed_packages())
    evaluated = make_trials(result, policy)(trial)
    collected = collect_episode("hammer", trial.seed, policy=source, split=trial.split)
    assert decode_actions(evaluated.actions).tobytes() == collected.actions.tobytes()
    assert evaluated.outcome == collected.outcome
    assert evaluated.steps > 0


def test_a_source_is_a_value_from_which_other_processes_make_the_policy(hammer, constant):
    for source in ("random", "constant:Constant"):
        found = pickle.loads(pickle.dumps(find_policy(source)))
        assert found == find_policy(source)
        first, again = (each.make(hammer, seed=4) for each in (found, find_policy(source)))
        np.testing.assert_array_equal(first.act({}), again.act({}))


def test_a_policy_whose_file_has_changed_has_another_text_and_is_not_made(hammer, constant):
    assert str(find_policy("expert")) == "expert"
    before = find_policy("constant:Constant")
    assert str(before) == f"constant:Constant ({before.content_digest})"
    before.make(hammer)
    constant.write_text(MODULE.replace("0.25", "0.5"))
    assert str(find_policy("constant:Constant")) != str(before)
    with pytest.raises(PolicyError, match="has changed since the start"):
        before.make(hammer)


def test_an_error_of_a_factory_is_the_policys_error(hammer):
    with pytest.raises(PolicyError, match=r"making it raised at evaluated.py:\d+: MemoryError"):
        find_policy("support.evaluated:failing_factory").make(hammer)


def test_a_policy_chooses_its_observations(monkeypatch):
    assert find_policy("support.evaluated:FaultyPolicy").env_kwargs == {}
    kwargs = {"obs_mode": "point_cloud", "cloud_size": [8, 8]}
    monkeypatch.setattr(FaultyPolicy, "env_kwargs", kwargs, raising=False)
    found = find_policy("support.evaluated:FaultyPolicy").env_kwargs
    assert found == {**kwargs, "cloud_source": "rays"}


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("exprt", UnknownNameError, r"policy: 'exprt'\. Did you mean 'expert'"),
        ("nowhere.safetensors", UnknownNameError, "or as the path of a checkpoint"),
        ("support.evaluated:FaultyPolcy", UnknownNameError, r"Did you mean 'FaultyPolicy'"),
        ("no_such_module:make", PolicyError, "Importing no_such_module raised"),
        ("support.evaluated:PresumptuousPolicy", UnknownNameError, "may choose: 'randomization'"),
    ],
)
def test_unknown_and_invalid_sources_are_refused(source, error, message):
    assert PresumptuousPolicy.env_kwargs
    with pytest.raises(error, match=message):
        find_policy(source)


# --- Policies without knowledge -------------------------------------------------------------

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "environment_id",  # of each: a few steps in tests/sim/test_part_motion.py
    [IDS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in IDS[1:])],
)
def test_a_robot_without_motion_never_succeeds(make, environment_id, seed):
    env = make(environment_id)
    episode = rollout(env, ZeroPolicy(env), seed=seed)
    assert episode.outcome == "time_limit"
    assert not episode.actions.any()
    assert not episode.success.any()


def test_random_actions_fill_the_space_and_follow_from_the_seed(make):
    env = make(IDS[0])
    first, again, other = (RandomPolicy(env, seed) for seed in (1, 1, 2))
    actions = np.array([first.act({}) for _ in range(1000)])
    assert all(env.action_space.contains(action) for action in actions)
    assert np.abs(actions.mean(axis=0)).max() < 0.1
    assert (actions.min(axis=0) < -0.95).all() and (actions.max(axis=0) > 0.95).all()
    np.testing.assert_array_equal(actions, [again.act({}) for _ in range(1000)])
    assert not np.array_equal(actions[0], other.act({}))
