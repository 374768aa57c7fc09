"""Policies are found by a name, a function or a checkpoint, and are the same for all programs."""

import pickle
import sys

import numpy as np
import pytest
from evaluated import SMALL, Misbehaving, a_result, greedy

from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.dataset.header import installed_packages
from fleet_tools.errors import PolicyError, UnknownNameError
from fleet_tools.evaluation.identity import identify
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.trial import make_trials
from fleet_tools.policies.sources import find

MODULE = """
import numpy as np


class Humble:
    def __init__(self, env):
        self.info = {"hopes": 0}

    def reset(self):
        pass

    def act(self, observation):
        return np.full(6, 0.25, np.float32)
"""


@pytest.fixture(name="humble")
def _humble(tmp_path, monkeypatch):
    """A module of one's own, and where it lies."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "humble.py").write_text(MODULE)
    yield tmp_path / "humble.py"
    sys.modules.pop("humble", None)


@pytest.mark.parametrize("source", ["expert", "disturbed_expert", "random", "collected:expert"])
def test_it_is_evaluated_as_it_is_collected_from(source):
    (trial,) = SMALL.trials("hammer", "train", 1)
    result = a_result(policy=identify(find(source)), packages=installed_packages())
    evaluated = make_trials(result, find(source))(trial)
    collected = collect_episode("hammer", trial.seed, policy=source, split=trial.split)
    assert decode_actions(evaluated.actions).tobytes() == collected.actions.tobytes()
    assert evaluated.outcome == collected.outcome
    assert evaluated.steps > 0


def test_it_travels_to_other_processes_as_a_value(make, humble):
    for source in ("random", "humble:Humble"):
        found = pickle.loads(pickle.dumps(find(source)))
        assert found == find(source)
        first, again = (each.make(make(), seed=4) for each in (found, find(source)))
        np.testing.assert_array_equal(first.act(None), again.act(None))


def test_its_text_says_what_it_is_and_changes_with_it(humble):
    assert str(find("expert")) == "expert"
    before = find("humble:Humble")
    assert str(before) == f"humble:Humble ({before.content_digest})"
    humble.write_text(MODULE.replace("0.25", "0.5"))
    assert str(find("humble:Humble")) != str(before)


def test_what_is_no_longer_what_it_was_is_not_made(make, humble):
    found = find("humble:Humble")
    found.make(make())
    humble.write_text(MODULE.replace("0.25", "0.5"))
    with pytest.raises(PolicyError, match="no longer what it was"):
        found.make(make())


def test_what_its_factory_raises_is_its_own_error(make):
    with pytest.raises(PolicyError, match=r"making it raised at evaluated.py:\d+: MemoryError"):
        find("evaluated:unmade").make(make())


def test_what_it_observes_is_its_own_choice(monkeypatch):
    assert find("evaluated:Misbehaving").environment == {}
    keywords = {"obs_mode": "point_cloud", "cloud_size": [8, 8]}
    monkeypatch.setattr(Misbehaving, "environment", keywords, raising=False)
    assert find("evaluated:Misbehaving").environment == keywords


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("exprt", UnknownNameError, "did you mean 'expert'"),
        ("nowhere.safetensors", UnknownNameError, "or the path of a checkpoint"),
        ("evaluated:Misbehavin", UnknownNameError, "did you mean 'Misbehaving'"),
        ("no_such_module:make", PolicyError, "Importing no_such_module raised"),
        ("evaluated:greedy", UnknownNameError, "for those who let it act"),
    ],
)
def test_policies_that_are_not_there_are_errors(source, error, said):
    assert greedy.environment
    with pytest.raises(error, match=said):
        find(source)
