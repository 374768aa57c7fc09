"""The example of an arena of one's own: what averaging and joint learning have in common."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT

torch = pytest.importorskip("torch")

from examples.cartpole.reinforce import (
    SYMMETRY,
    Reinforce,
    advantages,
    evaluate,
    learn_apart,
    learn_jointly,
)
from fleet_merging.average import average
from fleet_merging.barrier import performance_barrier
from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State
from fleet_tools.baselines import experiment as program

torch.set_num_threads(1)
SMALL = Reinforce(hidden=8)


def equal(one: State, other: State) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@given(st.integers(2, 500), st.floats(0.5, 1.0))
def test_advantages_are_normalized_and_fall(steps, discount):
    values = advantages(steps, discount).double()
    assert float(values.mean()) == pytest.approx(0, abs=1e-4)
    assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-3)
    assert bool((values.diff() <= 0).all())


def test_returns_to_go_are_sums_of_discounted_rewards():
    discount, steps = 0.9, 6
    expected = np.array([sum(discount**k for k in range(steps - t)) for t in range(steps)])
    expected = (expected - expected.mean()) / expected.std()
    np.testing.assert_allclose(advantages(steps, discount), expected, rtol=1e-5)


def test_the_same_seed_learns_the_same():
    one, again = (learn_apart(2, 6, 3, SMALL, seed=1) for _ in range(2))
    np.testing.assert_array_equal(one.returns, again.returns)
    assert all(map(equal, one.policies, again.policies))
    other = learn_apart(2, 6, 3, SMALL, seed=2)
    assert not np.array_equal(one.returns, other.returns)


def test_one_agent_alone_learns_as_if_it_were_averaged_or_joint():
    alone = learn_apart(1, 6, None, SMALL, seed=3)
    for other in (learn_apart(1, 6, 2, SMALL, seed=3), learn_jointly(1, 6, SMALL, seed=3)):
        np.testing.assert_array_equal(alone.returns, other.returns)
        assert equal(alone.policies[0], other.policies[0])


def test_agents_agree_after_an_average_and_only_then():
    merged = learn_apart(3, 4, 2, SMALL)
    assert all(equal(merged.policies[0], policy) for policy in merged.policies)
    apart = learn_apart(3, 4, None, SMALL)
    assert not equal(apart.policies[0], apart.policies[1])
    np.testing.assert_array_equal(apart.returns[:, :2], merged.returns[:, :2])  # until the first


def test_the_merge_is_an_argument():
    calls = []

    def first(states: Sequence[State]) -> State:
        calls.append(len(states))
        return states[0]

    result = learn_apart(3, 4, 2, SMALL, merge=first)
    assert calls == [3, 3] and all(equal(result.policies[0], each) for each in result.policies)


def test_it_learns():
    """An untrained policy falls after some 20 steps."""
    result = learn_jointly(4, 60, Reinforce(hidden=16), seed=0)
    assert result.returns[:, -10:].mean() > 2 * result.returns[:, :5].mean()
    assert evaluate(result.policies[0], 5) > 40


def test_the_table_covers_the_policies():
    (state,) = learn_jointly(1, 1, SMALL).policies
    assert SYMMETRY.group(state).sizes == {"h": (8,)}


@pytest.mark.parametrize("numbers", [{"agents": 0}, {"episodes": 0}, {"every": 0}])
def test_numbers_below_one_are_refused(numbers: dict[str, Any]):
    with pytest.raises(MergeError, match="at least 1"):
        learn_apart(**numbers)


def test_a_performance_barrier_is_measured_in_rollouts():
    one, other = learn_apart(2, 6, None, SMALL, seed=4).policies

    def returns(state: State) -> float:
        return evaluate(state, 3)

    barrier = performance_barrier(returns, one, other, points=3)
    ends, middle = (returns(one) + returns(other)) / 2, returns(average([one, other]))
    assert barrier.values == (returns(one), middle, returns(other))
    assert barrier.height == ends - min(barrier.values)


def test_the_experiment_of_the_example_resumes_and_takes_more_seeds(tmp_path, capsys):
    """An arena of one's own is named module:class."""
    content = yaml.safe_load((ROOT / "examples" / "cartpole" / "cartpole.yaml").read_text())
    path, output = tmp_path / "agents.yaml", tmp_path / "out"
    small = content | {"base": {"agents": 2, "episodes": 2}, "seeds": 1}
    command = [str(path), "--output", str(output), "--workers", "0"]
    path.write_text(yaml.safe_dump(small))
    assert program.main([*command, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    before = {each: each.stat().st_mtime_ns for each in (output / "cells").iterdir()}
    path.write_text(yaml.safe_dump(small | {"seeds": 2}))
    assert program.main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["experiments"]["agents"]["rows"]
    assert [row["arm"] for row in rows] == [*content["arms"], "joint"]
    assert all(row["learning"]["low"] <= row["learning"]["high"] for row in rows)
    assert all(each.stat().st_mtime_ns == then for each, then in before.items())
    path.write_text(yaml.safe_dump(small | {"arena": "nowhere:CartPole"}))
    assert program.main([*command, "--quiet"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
