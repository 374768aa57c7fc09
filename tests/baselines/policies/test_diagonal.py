"""The body of diagonal linear recurrences: against steps one by one, and where it is merged."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.policy_cases import BLUEPRINTS
from support.policy_merges import error_of, problem_of

from fleet_merging.errors import MergeError
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_tools.baselines.policies.diagonal import DiagonalBody, decayed_sums
from fleet_tools.baselines.policies.part_configs import DiagonalConfig

BLUEPRINT = BLUEPRINTS["diagonal on state"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.booleans())
def test_all_steps_at_once_are_the_steps_one_by_one_with_the_same_gradients(seed, steps, begins):
    generator = torch.Generator().manual_seed(seed)
    decay = torch.rand(5, generator=generator, dtype=torch.float64).requires_grad_()
    inputs = torch.randn(2, steps, 5, generator=generator, dtype=torch.float64).requires_grad_()
    first = torch.randn(2, 5, generator=generator, dtype=torch.float64).requires_grad_()
    weights = torch.randn(2, steps, 5, generator=generator, dtype=torch.float64)
    state = first if begins else torch.zeros_like(first)
    expected = []
    for step in range(steps):
        state = decay * state + inputs[:, step]
        expected.append(state)
    found = decayed_sums(decay, inputs, first if begins else None)
    torch.testing.assert_close(found, torch.stack(expected, 1))
    leaves = (decay, inputs, first) if begins else (decay, inputs)
    gradients = [
        torch.autograd.grad((weights * each).sum(), leaves, materialize_grads=True)
        for each in (found, torch.stack(expected, 1))
    ]
    torch.testing.assert_close(*gradients)


def test_a_layer_computes_what_its_equations_say():
    torch.manual_seed(0)
    body = DiagonalBody(DiagonalConfig(layers=1, width=4), 3).double()
    features = torch.randn(1, 6, 3, dtype=torch.float64)
    with torch.no_grad():
        units, (last,) = body(features)
    weights = {name: each.detach().numpy() for name, each in body.named_parameters()}
    a = np.exp(-np.exp(weights["decays.0"]))
    state = np.zeros(4)
    for x, h in zip(features[0].numpy(), units[0].numpy(), strict=True):
        driven = weights["inputs.0.weight"] @ x + weights["inputs.0.bias"]
        state = a * state + np.sqrt(1 - a**2) * driven
        read = weights["outputs.0.weight"] @ state + weights["outputs.0.bias"]
        np.testing.assert_allclose(h, np.maximum(read, 0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(last[0, 0], state)


@pytest.mark.parametrize("rate", [-30.0, -8.0, 0.0, 5.0, 30.0])
def test_no_weights_make_it_unstable_or_its_gradients_not_finite(rate):
    torch.manual_seed(0)
    body = DiagonalBody(DiagonalConfig(layers=2, width=8), 3)
    for each in body.decays:
        torch.nn.init.constant_(each, rate)
    units, _ = body(torch.ones(1, 3000, 3))
    units.square().mean().backward()
    assert bool(torch.isfinite(units).all()) and float(units.detach().abs().max()) < 1e3
    for each in body.parameters():
        assert each.grad is not None and bool(torch.isfinite(each.grad).all())


def test_drawn_decays_are_those_of_a_ring_and_remember_white_noise_alike():
    torch.manual_seed(0)
    body = DiagonalBody(DiagonalConfig(layers=1, width=3_000), 1)
    decays = torch.exp(-torch.exp(body.decays[0].detach()))
    assert float(decays.min()) > 0 and float(decays.max()) < 1
    squares = torch.quantile(decays.square(), torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(squares, torch.tensor([0.25, 0.5, 0.75]), rtol=0.05, atol=0.03)
    some = torch.tensor([0.1, 0.9, 0.98])
    driven = torch.sqrt(1 - some**2) * torch.randn(4, 2000, 3)
    deviations = decayed_sums(some, driven)[:, 500:].std(dim=(0, 1))
    torch.testing.assert_close(deviations, torch.ones(3), rtol=0.15, atol=0.0)


def problem_of_seeds(seeds: tuple[int, ...], method: str = "") -> MergeProblem:
    return problem_of(BLUEPRINT, [BLUEPRINT.create(seed).state_dict() for seed in seeds], method)


def test_permuted_copies_are_compressed_into_their_function():
    problem = problem_of_seeds((1, 1, 1))
    generator = np.random.default_rng(0)
    models = [
        problem.symmetry.apply(problem.group.random(generator), each) for each in problem.models
    ]
    problem = replace(problem, models=models)
    assert error_of(BLUEPRINT, problem, merge("compress", problem, ridge=1e-7)) < 1e-3


def test_it_is_merged_by_blocks_by_choice_and_by_averages():
    problem = problem_of_seeds((1, 2, 3))
    beside = error_of(BLUEPRINT, problem, merge("concatenation", problem))
    wide = error_of(
        BLUEPRINT, problem, merge("partition", problem_of_seeds((1, 2, 3), "partition"))
    )
    assert wide == pytest.approx(beside, rel=1e-3)
    errors = [
        error_of(BLUEPRINT, problem, merge("compress", problem, width=n)) for n in (4, 16, 30, 48)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(beside, rel=0.05)  # all units, and their own decays
    averages = [
        error_of(BLUEPRINT, problem, merge(each, problem))
        for each in ("naive_average", "git_rebasin")
    ]
    assert errors[1] < min(averages)


def test_decays_that_belong_to_nothing_are_refused():
    with pytest.raises(MergeError, match=r"body\.decays\.0.*belong to no affine map"):
        merge("compress", replace(problem_of_seeds((1, 2)), unitwise=()))
