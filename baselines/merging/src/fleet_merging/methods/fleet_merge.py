"""Fleet-Merge: Algorithm 1 of the paper, with its ablations.

`fleet_merge_listing` is the algorithm of the listing. `fleet_merge` differs from it by options:

- Each descent begins near a hard permutation with the weight `trust` on its entries. This is first
  the matching of weights (`start`), and in later epochs the permutation of the epoch before. In the
  listing it begins at the identity, and P := Proj_tau(P - eta dL/dP) loses it after a step unless
  tau is small.
- AdamW descends through the projection, from noisy scores (`descent`).
- Models are averaged by their averaging weights, in fleets the robots' numbers of training steps
  (`equal_weights`).

Both differ from the listing in two points. A step uses the data holder's draw for a seed, in fleets
a batch, instead of a pair of observation and action. And soft permutations begin each epoch at the
hard ones, as in section 3.1, while the listing initializes them once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from fleet_merging.average import WeightedSum, agreeing_tensors, weighted_sum
from fleet_merging.errors import MergeError, require_choice
from fleet_merging.matching.sinkhorn import harden
from fleet_merging.matching.soft_descent import Descent, descend_together, descent_steps
from fleet_merging.methods.facts import method, required, variant
from fleet_merging.methods.rebasin import STARTS, match_models
from fleet_merging.methods.seeded_draws import content_order, reordered
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.query import LossQuery
from fleet_merging.queries.traffic import AT_ONCE, TrafficMeter
from fleet_merging.symmetry.group import Permutation
from fleet_merging.symmetry.table import State, Symmetry

POINTS = ("interpolation", "simplex", "average")

TRUST = 0.9
"""Default of `trust`."""

Points = Callable[[], tuple[WeightedSum, float]]
"""Draws the other models' part of a point, and the coefficient of the moving model."""

LISTING = Descent(noise=0.0, projection="after")
"""The descent of Algorithm 1, with default values for numbers that the paper does not give."""


@variant("fleet_merge_average", "Fleet-Merge at the average", source="the paper", point="average")
@variant("fleet_merge_simplex", "Fleet-Merge in the simplex", source="the paper", point="simplex")
@variant("fleet_merge_soft", "Fleet-Merge, soft", source="the paper", soft=True)
@variant(
    "fleet_merge_monotone",
    "Fleet-Merge, monotone",
    source="this project",
    asks="gradients and losses",
    monotone=True,
)
@variant(
    "fleet_merge_listing",
    "Fleet-Merge word by word",
    start="identity",
    trust=None,
    descent=LISTING,
    equal_weights=True,
)
@method(
    "fleet_merge",
    "Fleet-Merge",
    source="the paper, Algorithm 1",
    needs=("data_holders",),
    asks="gradients, epochs x steps",
)
def fleet_merge(
    problem: MergeProblem,
    *,
    epochs: int = 3,
    descent: Descent | None = None,
    participants: int | None = None,
    start: str = "matching",
    trust: float | None = TRUST,
    point: str = "interpolation",
    soft: bool = False,
    monotone: bool = False,
    equal_weights: bool = False,
) -> MergeResult:
    """Aligns all models with their average, each by the loss on its own data.

    The result does not depend on the order of the models: their contents determine the order of
    random numbers.

    Args:
        problem: The models and their data holders.
        epochs: Number of epochs, E; each ends with a new average.
        descent: Parameters of the descent of T steps (S in the algorithm's list of parameters);
            defaults if None.
        participants: Number of models, drawn anew in each epoch, that move in it; all if None.
        start: "matching" of weights (MergeMany), or "identity", as in the paper.
        trust: Weight of each unit's entry in the first projection of every descent from a hard
            permutation, also the identity; see `descend`. A descent leaves its start only if rate
            times steps exceeds tau log(n trust / (1 - trust)): 8.4 for n = 512 units. If None, a
            descent begins nearly uniform, and loses most of the epoch before.
        point: Model at which gradients are computed: "interpolation", a random point between the
            permuted model and the average. "simplex" (the paper's fleet-merge-simplex): a random
            point among all models. "average" (fleet-merge-average): their average.
        soft: Average softly permuted models (fleet-merge-soft), and return that average.
        monotone: Not in the paper: accept a new permutation only if it lowers the average's loss on
            the data of all data holders.
        equal_weights: Average all models with equal weights, as the listing does.

    Raises:
        MergeError: An option is unknown or out of range, or there are no data holders.
        MessageError: A data holder's answer is invalid.
    """
    _require_usable(problem, epochs, participants, start, point)
    descent = descent or Descent()
    if equal_weights:
        problem = replace(problem, averaging_weights=None)
    order = content_order(problem.models)
    problem = reordered(problem, order)
    form, count, meter = problem.models[0], len(problem.models), TrafficMeter()
    weights = problem.normalized_weights.tolist()
    # Line 3: initialize.
    permutations: list[Permutation] = [problem.group.identity() for _ in problem.models]
    if start != "identity":
        permutations[:] = match_models(problem)
    pooled_loss = partial(meter.ask_mean_loss, problem.data_holders, weights)
    lowest = pooled_loss(problem.mean(permutations)) if monotone else math.inf
    # A point is made of a model and of the mean, which stays until the next epoch, so that models
    # of an epoch descend at the same time. Points of the ablations depend on the present models.
    # Two models that move at once would only swap there: so one moves after the other.
    together = AT_ONCE if point == "interpolation" else 1
    for epoch in range(epochs):
        total = problem.total(permutations)
        mean = total.mean(form)  # line 5
        moving = np.random.default_rng((problem.seed, epoch)).permutation(count)  # line 6
        moving = moving[:participants].tolist()
        for begin in range(0, len(moving), together):
            generators = {
                index: np.random.default_rng((problem.seed, epoch, index))
                for index in moving[begin : begin + together]
            }
            points = {
                index: _points(problem, permutations, index, point, mean, total, generator)
                for index, generator in generators.items()
            }
            # Lines 8 to 11, from the hard permutation (section 3.1 says so; the listing does not).
            soft_ones = _descend(problem, permutations, points, generators, meter, descent, trust)
            for index, found in soft_ones.items():
                found = found if soft else harden(problem.group, found)  # line 12
                moved = problem.symmetry.apply(found, problem.models[index])
                others = _without(problem, permutations, index, total)
                trial = others.plus(moved, weights[index])
                if monotone:
                    loss = pooled_loss(trial.mean(form))
                    if not loss < lowest:
                        continue
                    lowest = loss
                permutations[index], total = found, trial
    state = problem.mean(permutations)  # line 13
    positions = np.argsort(order)
    return MergeResult.network(
        state, tuple(permutations[position] for position in positions), meter.traffic
    )


def align_with_mean(
    symmetry: Symmetry,
    model: State,
    start: Permutation,
    mean: State,
    data_holder: DataHolder,
    generator: np.random.Generator,
    descent: Descent,
    trust: float | None,
) -> dict[str, np.ndarray]:
    """Aligns one model with the average: lines 8 to 12 for one model.

    At the default point it depends on the other models only by their average, here the one at the
    beginning of the epoch. So the holder of a model and its data can align it alone.
    """
    problem = MergeProblem(symmetry, [model], data_holders=[data_holder])
    points, meter = {0: _between(mean, generator)}, TrafficMeter()
    found = _descend(problem, [start], points, {0: generator}, meter, descent, trust)
    return harden(problem.group, found[0])


def _points(
    problem: MergeProblem,
    permutations: Sequence[Permutation],
    index: int,
    point: str,
    mean: State,
    total: WeightedSum,
    generator: np.random.Generator,
) -> Points:
    """Returns a function that draws the points at which a model's gradients are computed.

    `mean` is the average at the beginning of the epoch, `total` the sum of all models as permuted
    now.
    """
    if point == "average":
        others = _without(problem, permutations, index, total)
        return lambda: (others, float(problem.normalized_weights[index]))
    if point == "interpolation":
        return _between(mean, generator)
    permuted = problem.permuted(permutations)
    del permuted[index]

    def among_all() -> tuple[WeightedSum, float]:
        coefficients = generator.dirichlet(np.ones(len(permuted) + 1)).tolist()
        coefficient = coefficients.pop(index)
        return weighted_sum(permuted, coefficients), coefficient

    return among_all


def _without(
    problem: MergeProblem, permutations: Sequence[Permutation], index: int, total: WeightedSum
) -> WeightedSum:
    """Returns the sum of all models but one."""
    own = problem.symmetry.apply(permutations[index], problem.models[index])
    return total.plus(own, -float(problem.normalized_weights[index]))


def _between(mean: State, generator: np.random.Generator) -> Points:
    """Returns a function that draws points between the moving model and an average."""
    nothing = WeightedSum(agreeing=agreeing_tensors(mean))

    def draw() -> tuple[WeightedSum, float]:
        coefficient = generator.uniform()
        return nothing.plus(mean, 1 - coefficient), coefficient

    return draw


def _descend(
    problem: MergeProblem,
    permutations: Sequence[Permutation],
    points: Mapping[int, Points],
    generators: Mapping[int, np.random.Generator],
    meter: TrafficMeter,
    descent: Descent,
    trust: float | None,
) -> dict[int, dict[str, torch.Tensor]]:
    """Descends with the models that have `points`; all data holders of a step are asked at once.

    It returns their soft permutations.
    """

    def gradients(moving: Mapping[int, State]) -> list[State]:
        queries, coefficients = [], []
        for index, state in moving.items():
            others, coefficient = points[index]()
            model = others.plus(state, coefficient).mean(state)  # line 9
            queries.append(LossQuery(model, int(generators[index].integers(2**31))))
            coefficients.append(coefficient)
        answers = meter.ask_losses([problem.data_holders[index] for index in moving], queries)
        return [
            {name: coefficient * value for name, value in answer.gradient.items()}
            for coefficient, answer in zip(coefficients, answers, strict=True)
        ]

    descents = {
        index: descent_steps(
            problem.symmetry, problem.models[index], permutations[index], descent, generator, trust
        )
        for index, generator in generators.items()
    }
    return descend_together(descents, gradients)


def _require_usable(
    problem: MergeProblem, epochs: int, participants: int | None, start: str, point: str
) -> None:
    require_choice("The start", start, STARTS)
    require_choice("The point", point, POINTS)
    required(problem, "data_holders")
    if epochs < 1:
        raise MergeError(f"The number of epochs of Fleet-Merge is {epochs}. Give at least 1.")
    count = len(problem.models)
    if participants is not None and not 1 <= participants <= count:
        raise MergeError(f"{participants} of {count} models take part. Give 1 to {count}, or None.")
