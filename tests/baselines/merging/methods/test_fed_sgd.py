"""FedSGD, the control at equal traffic, is descent on the pooled data."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.merging_cases import WIDE, make_data_holder
from support.vector_models import holder, vectors

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.fleet_merge import fleet_merge
from fleet_tools.baselines.merging.methods.gradient_methods import fed_sgd
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.queries.data_holder import LocalDataHolder
from fleet_tools.baselines.merging.symmetry.table import Symmetry


def regression(inputs, outputs, batch=None):
    """Returns a data holder of rows of a linear regression; it draws some of them, or all."""
    rows, targets = torch.tensor(inputs), torch.tensor(outputs)

    def loss(x, seed):
        chosen = slice(None)
        if batch and seed is not None:
            chosen = np.random.default_rng(seed).permutation(len(rows))[:batch]
        return (rows[chosen] @ x - targets[chosen]).square().mean()

    return holder(rows.shape[1], loss)


def split_regression(seed, batch=None):
    """Returns a problem with a regression split in unequal parts, and the pooled solution."""
    generator = np.random.default_rng(seed)
    inputs, sizes = generator.normal(size=(60, 3)), [10, 20, 30]
    outputs = inputs @ generator.normal(size=3) + 0.3 * generator.normal(size=60)
    parts = [np.split(each, np.cumsum(sizes)[:-1]) for each in (inputs, outputs)]
    models = [
        np.linalg.lstsq(rows, targets, rcond=None)[0] for rows, targets in zip(*parts, strict=True)
    ]
    holders = [regression(rows, targets, batch) for rows, targets in zip(*parts, strict=True)]
    problem = vectors(models, holders, sizes, seed=seed)
    return problem, np.linalg.lstsq(inputs, outputs, rcond=None)[0]


@pytest.mark.parametrize("seed", [0, 1])
def test_it_solves_the_pooled_least_squares(seed):
    problem, solution = split_regression(seed)
    merged = fed_sgd(problem, steps=150, rate=0.1)
    np.testing.assert_allclose(merged.state["x"], solution, atol=1e-4)


def test_on_drawn_batches_it_comes_close():
    problem, solution = split_regression(0, batch=5)
    far = vectors([[3.0, 3.0, 3.0]] * 3, problem.data_holders, problem.averaging_weights)
    merged = fed_sgd(far, steps=100, rate=0.3)
    np.testing.assert_allclose(merged.state["x"], solution, atol=0.1)


def test_holders_count_by_their_averaging_weights():
    def towards(target):
        return holder(1, lambda x, seed: (x - target).square().sum())

    problem = vectors([[0.0], [0.0], [9.0]], [towards(1.0), towards(4.0), towards(99.0)], [2, 1, 0])
    merged = fed_sgd(problem, steps=100, rate=0.2)
    np.testing.assert_allclose(merged.state["x"], 2.0, atol=0.05)
    assert merged.traffic.calls == 2 * 100


@pytest.mark.parametrize("participants", [None, 1, 2])
def test_its_traffic_is_that_of_fleet_merge(participants):
    models = [WIDE["mlp"].build(seed).state_dict() for seed in range(3)]
    holders = [make_data_holder(WIDE["mlp"], torch.full((40, 2), float(i))) for i in range(3)]
    problem = MergeProblem(WIDE["mlp"].symmetry, models, data_holders=holders)
    control = fed_sgd(problem, steps=6, participants=participants)
    descent = Descent(steps=3)
    method = fleet_merge(problem, epochs=2, descent=descent, participants=participants)
    assert control.traffic == method.traffic
    assert control.traffic.calls == 6 * (participants or 3)


def test_its_default_traffic_is_that_of_fleet_merge_by_default():
    """From the signatures: 300 gradients of each robot would take long."""
    defaults = [inspect.signature(each).parameters for each in (fed_sgd, fleet_merge)]
    assert defaults[0]["steps"].default == defaults[1]["epochs"].default * Descent().steps


def test_all_take_part_about_equally_often():
    asked = []

    def recording(number):
        def loss(x, seed):
            asked.append(number)
            return x.sum()

        return holder(1, loss)

    problem = vectors([[0.0], [1.0], [2.0]], [recording(i) for i in range(3)])
    fed_sgd(problem, steps=300, participants=1)
    assert np.abs(np.bincount(asked) - 100).max() < 33  # four standard deviations


def test_small_steps_are_not_lost_in_half_precision():
    """A step of 1e-4 is less than half of a rounding error at 1 in bfloat16."""
    module = torch.nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    state = {"weight": torch.ones(1, 1, dtype=torch.bfloat16)}
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    local = LocalDataHolder(module, lambda policy, seed: policy(one).square().sum())
    problem = MergeProblem(Symmetry.of({"weight": "_ _"}), [state], data_holders=[local])
    merged = fed_sgd(problem, steps=200, rate=2e-4)
    assert merged.state["weight"].dtype == torch.bfloat16
    assert abs(float(merged.state["weight"]) - 0.98) < 0.005


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "-1 steps"),
        ({"rate": 0.0}, "the rate 0.0"),
        ({"participants": 3}, "3 of 2 models with averaging weight"),
        ({"participants": 0}, "0 of 2 models"),
    ],
)
def test_invalid_options_are_explained(options, message):
    problem = split_regression(0)[0]
    problem = vectors([[0.0, 0, 0]] * 3, problem.data_holders, [1, 1, 0])
    with pytest.raises(MergeError, match=message):
        fed_sgd(problem, **options)
