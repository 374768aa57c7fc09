"""Models of strangers merge by every method into a usable model, or are refused by name."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from merging_support.foreign_networks import ZOO, derived

from fleet_merging.errors import MergingError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods.registry import METHODS, merge
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.moments.rows import applied_maps
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder

OWN = "examples.own_method.matched_median:matched_median"
QUICK = {
    **{name: {"descent": Descent(steps=1)} for name in METHODS if "sinkhorn" in name},
    **{name: {"descent": Descent(steps=1), "epochs": 1} for name in METHODS if "fleet" in name},
    "fisher": {"samples": 1},
    "fed_sgd": {"steps": 2},
    "distillation": {"steps": 2},
    "task_arithmetic": {"scale": 2.0},
    "ties": {"scale": 2.0},
}
"""Options with which methods are quick, or leave the convex hull of the models."""

VARIANTS = {"sinkhorn_rebasin_midpoint", "sinkhorn_rebasin_l2"}
VARIANTS |= {name for name in METHODS if name.startswith("fleet_merge_") and "soft" not in name}
CASES = [
    pytest.param(name, kind, marks=[pytest.mark.slow] if (k + n) % 6 else [])
    for k, kind in enumerate(ZOO)
    for n, name in enumerate((*(each for each in METHODS if each not in VARIANTS), OWN))
]
"""All methods but variants; quick is each on a sixth of the models."""


pytestmark = pytest.mark.filterwarnings("ignore:Guards may run slower")  # Python 3.13.0, compiled


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))


def problem_of(kind, models):
    network = ZOO[kind]
    model, example = built(kind), network.example
    labels = torch.ones_like(outputs(kind, model.state_dict())).reshape(-1, 2)

    def loss(policy, seed):
        return (policy(example) - 1).square().mean()

    holder = LocalDataHolder(model, loss, lambda: [LabelledBatch((example,), labels)])
    return MergeProblem(
        derived(kind),
        models,
        data_holders=[holder] * 3,
        shared_data_holder=holder,
        affine_maps=applied_maps(model, example),
        base=network.weights(9),
        module=model,
        example=example,
    )


@cache
def built(kind):
    return ZOO[kind].build()


def outputs(kind, state):
    model = built(kind)
    model.load_state_dict({**model.state_dict(), **state})
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return model(ZOO[kind].example)


@pytest.mark.parametrize("kind", ZOO)
def test_units_are_found(kind):
    sizes = derived(kind).group(ZOO[kind].weights()).sizes
    assert len(sizes) == ZOO[kind].free


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_every_method_makes_a_usable_model_or_says_why_not(method, kind):
    models = [ZOO[kind].weights(seed) for seed in range(3)]
    try:
        merged = merge(method, problem_of(kind, models), **QUICK.get(method, {})).model
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            found = merged(ZOO[kind].example)
    except MergingError:
        return
    own = outputs(kind, models[0])
    assert torch.isfinite(found).all()
    assert float(found.abs().max()) < 100 * float(own.abs().max())


@pytest.mark.parametrize("kind", ZOO)
def test_permuted_copies_merge_into_their_function(kind):
    model, symmetry = ZOO[kind].weights(), derived(kind)
    group, generator = symmetry.group(model), np.random.default_rng(0)
    copies = [model, *(symmetry.apply(group.random(generator), model) for _ in range(2))]
    for each in copies:
        torch.testing.assert_close(outputs(kind, each), outputs(kind, model))
    for method in ("git_rebasin", OWN):
        merged = merge(method, MergeProblem(symmetry, copies)).state
        torch.testing.assert_close(outputs(kind, merged), outputs(kind, model))


@pytest.mark.parametrize("kind", ZOO)
@pytest.mark.parametrize("method", ["naive_average", "git_rebasin", "task_arithmetic", "fisher"])
def test_equal_models_merge_into_that_model(kind, method):
    model = ZOO[kind].weights()
    problem = problem_of(kind, [model] * 3)
    merged = merge(method, problem, **({"samples": 1} if method == "fisher" else {})).state
    torch.testing.assert_close(outputs(kind, merged), outputs(kind, model))
