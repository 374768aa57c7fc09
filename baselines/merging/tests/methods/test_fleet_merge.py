"""Laws of Fleet-Merge."""

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging_support.permuted_copies import SHORT, copies, different_models, outputs
from merging_support.problems import WIDE

from fleet_merging.average import average
from fleet_merging.matching.sinkhorn import soften
from fleet_merging.matching.soft_descent import Descent, descend, descent_steps
from fleet_merging.methods import fleet_merge as fleet_merge_module
from fleet_merging.methods.fleet_merge import LISTING, fleet_merge
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.traffic import TrafficMeter


@pytest.mark.parametrize("kind", WIDE)
def test_fleet_merge_from_matching_recovers_the_function_of_permuted_copies(kind):
    """Gradients are nearly zero there, and the hard projection removes the noise."""
    problem = copies(kind, 3)
    merged = fleet_merge(problem, descent=Descent(steps=3, rate=0.01), epochs=2)
    torch.testing.assert_close(outputs(kind, merged.state), outputs(kind, problem.models[0]))


@pytest.mark.parametrize("tau", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("trust", [0.5, 0.9])
@pytest.mark.parametrize("kind", ["random", "identity"])
def test_a_hard_start_has_the_weight_of_its_trust(tau, trust, kind):
    problem = different_models(1)
    group = problem.group
    start = group.identity() if kind == "identity" else group.random(np.random.default_rng(0))
    soft = descend(
        problem.symmetry,
        problem.models[0],
        start,
        lambda permuted: {},
        Descent(steps=0, noise=0.0, tau=tau),
        np.random.default_rng(0),
        trust,
    )
    for name, index in start.items():
        weights = soft[name].gather(1, torch.as_tensor(index).unsqueeze(1))
        torch.testing.assert_close(weights, torch.full_like(weights, trust), rtol=1e-5, atol=0)


@pytest.mark.parametrize("tau", [0.3, 1.0])
@pytest.mark.parametrize("trust", [None, 0.9])
def test_a_soft_start_is_where_the_descent_begins(tau, trust):
    problem = different_models(1)
    generator = np.random.default_rng(0)
    scores = {
        name: torch.from_numpy(generator.normal(size=(*shape, *shape)))
        for name, shape in problem.group.sizes.items()
    }
    start = soften(scores)
    still = Descent(steps=0, noise=0.0, tau=tau)
    model = problem.models[0]
    found = descend(problem.symmetry, model, start, lambda _: {}, still, generator, trust)
    for name, matrix in start.items():
        torch.testing.assert_close(found[name], matrix, rtol=5e-3, atol=1e-6)


def test_every_epoch_of_fleet_merge_begins_near_what_is_permuted_already(monkeypatch):
    """Without trust, the first soft matrix of each descent is nearly uniform."""
    problem = different_models(3)
    weights = []

    def spy(symmetry, model, start, descent, generator, trust):
        still = replace(descent, steps=0, noise=0.0)
        soft = descend(symmetry, model, start, lambda _: {}, still, generator, trust)
        entries = (soft[k].gather(1, torch.as_tensor(v).unsqueeze(1)) for k, v in start.items())
        weights.extend(float(each.mean()) for each in entries)
        return descent_steps(symmetry, model, start, descent, generator, trust)

    monkeypatch.setattr(fleet_merge_module, "descent_steps", spy)
    for start in ("identity", "matching"):
        fleet_merge(problem, descent=Descent(steps=2, rate=5.0), start=start, epochs=2)
        assert len(weights) == 12 and min(weights) > 0.89
        weights.clear()
    fleet_merge(problem, descent=SHORT, start="identity", trust=None, epochs=1)
    assert max(weights) < 0.13


def test_the_listing_projects_after_each_step_from_the_identity_itself():
    """The first gradient is that at the identity; then tau = 1 makes P nearly uniform."""
    problem = different_models(2, averaging_weights=[3, 1])
    merged = merge("fleet_merge_listing", problem, epochs=1)
    plain = average(problem.permuted(merged.permutations))
    assert all(torch.equal(merged.state[name], plain[name]) for name in plain)
    seen = []

    def gradient(permuted):
        seen.append(permuted)
        return {}

    one, identity = problem.models[0], problem.group.identity()
    generator = np.random.default_rng(0)
    soft = descend(problem.symmetry, one, identity, gradient, LISTING, generator)
    for name, tensor in one.items():
        torch.testing.assert_close(seen[0][name], tensor)
    assert max(float(matrix.max()) for matrix in soft.values()) < 0.13


def test_constants_of_a_merge_are_not_computed_in_each_step():
    """Sizes of units, nested outputs, and names of tensors without an average."""
    problem, counts = different_models(2), []
    for steps in (1, 5):
        calls = Counter[str]()

        def note(frame, event, _, calls=calls):
            calls[frame.f_code.co_name] += event == "call"

        sys.setprofile(note)
        try:
            merge("fleet_merge", problem, epochs=1, descent=Descent(steps=steps))
        finally:
            sys.setprofile(None)
        assert calls["reorder"] > 10 * steps  # so that calls are seen
        counts.append([calls[name] for name in ("solve", "tensors_in", "agreeing_tensors")])
    assert counts[0] == counts[1] and max(counts[0]) <= 4


@settings(max_examples=6)
@given(
    st.permutations(range(4)),
    st.sampled_from(["matching", "identity"]),
    st.sampled_from(["interpolation", "simplex", "average"]),
    st.sampled_from([None, 2]),
)
def test_fleet_merge_does_not_depend_on_the_order_of_models(order, start, point, participants):
    weights = [1, 2, 3, 4]
    problem = different_models(4, averaging_weights=weights)
    shuffled = MergeProblem(
        problem.symmetry,
        [problem.models[i] for i in order],
        averaging_weights=[weights[i] for i in order],
        data_holders=[problem.data_holders[i] for i in order],
    )
    one, other = (
        fleet_merge(
            each, descent=SHORT, start=start, point=point, participants=participants, epochs=2
        )
        for each in (problem, shuffled)
    )
    for name in one.state:
        assert torch.equal(one.state[name], other.state[name])
    for position, i in enumerate(order):
        for name, index in one.permutations[i].items():
            assert np.array_equal(other.permutations[position][name], index)


def test_only_participants_are_asked_and_move():
    problem = different_models(4)
    merged = fleet_merge(
        problem, descent=Descent(steps=3), participants=1, epochs=1, start="identity"
    )
    assert merged.traffic.calls == 3
    identity = problem.group.identity()
    moved = [
        any(not np.array_equal(p[name], identity[name]) for name in p) for p in merged.permutations
    ]
    assert sum(moved) <= 1


@pytest.mark.parametrize("start", ["matching", "identity"])
def test_monotone_fleet_merge_never_ends_above_its_start(start):
    weights = [1, 2, 3]
    problem = different_models(3, averaging_weights=weights)

    def pooled(state):
        answers = [
            TrafficMeter().ask(each, state, None, gradient=False) for each in problem.data_holders
        ]
        return np.average([answer.loss for answer in answers], weights=weights)

    still = Descent(steps=0, noise=0.0)  # the start itself
    begin = fleet_merge(problem, start=start, descent=still, epochs=1)
    wild = Descent(steps=2, rate=5.0)
    merged = fleet_merge(problem, start=start, descent=wild, epochs=2, monotone=True)
    free = fleet_merge(problem, start=start, descent=wild, epochs=2)
    assert pooled(merged.state) <= pooled(begin.state) + 1e-12
    queries = 3 * (1 + 2 * 3)  # losses at first, and after each model's turn
    assert merged.traffic.calls == free.traffic.calls + queries


def test_the_projection_after_each_step_descends_too():
    """Algorithm 1 to the letter, with little entropy so that it stays near its start."""
    problem = copies("mlp", 2)
    descent = Descent(steps=5, tau=0.05, rate=0.1, noise=0.0, projection="after")
    merged = fleet_merge(problem, descent=descent)
    torch.testing.assert_close(outputs("mlp", merged.state), outputs("mlp", problem.models[0]))
