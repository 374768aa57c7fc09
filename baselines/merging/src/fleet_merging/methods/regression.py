"""Methods that solve for affine maps by least squares on moments from data holders.

RegMean fits each map to the outputs of the models' maps on the models' own inputs. In the merged
network inputs differ, since the layers before have changed. `least_squares` uses the map's inputs
there, and the labels for the last map. Such fits also prune and quantize networks (He et al. 2017,
eq. 5).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from fleet_merging.errors import require_choice
from fleet_merging.methods.facts import MOMENTS, method, require_moments, required
from fleet_merging.methods.rebasin import align
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import Moments, Target, combine, solve
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.robust import robust_moments, robust_state
from fleet_merging.symmetry.table import State

Pool = Callable[[Iterable[Moments], Sequence[float]], Moments]
"""pool(moments, weights): moments of all robots together."""


@method(
    "regmean",
    "RegMean",
    source="Jin et al. 2023",
    needs=MOMENTS,
    start="common",
    asks="moments, once",
)
def regmean(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    ridge: float = 1e-3,
    rule: str = "mean",
    byzantine: int = 1,
) -> MergeResult:
    """Merges each affine map by M = (sum_i w_i G_i)^-1 sum_i w_i G_i M_i.

    Jin et al., "Dataless Knowledge Fusion by Merging Weights of Language Models", 2023, eq. 2. G_i
    is the second moment of the map's inputs in model i on its own data: one message from each data
    holder. M is the matrix with outputs closest to all models' outputs, each on its own inputs.
    Parameters of other layers are averaged.

    Args:
        problem: The models, their data holders and affine maps.
        alignment: "none", "weights" or "activations", see `rebasin.align`.
        ridge: Weight of the average of the matrices, which determines M in directions without
            inputs; relative to the mean square of the inputs.
        rule: Aggregation of all robots' moments, and of their other weights; see `robust`.
        byzantine: Largest number of robots that may send arbitrary moments.

    Raises:
        MergeError: `alignment` is unknown, or data holders or affine maps are missing.
        MessageError: A data holder's answer is invalid.
    """
    require_moments(problem)
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    models, weights = problem.permuted(permutations), problem.normalized_weights.tolist()
    names = tuple(each.name for each in problem.affine_maps)
    merged = robust_state(problem, permutations, rule, byzantine)
    parts: dict[str, list[tuple[Moments, float]]] = {name: [] for name in names}
    queries = [MomentQuery(model, names) for model in models]
    answers = meter.ask_all_moments(problem.data_holders, queries, problem.affine_maps)
    for measured, model, weight in zip(answers, models, weights, strict=True):
        for each in problem.affine_maps:
            G = measured.pop(each.name).inputs
            own = Moments(G, G @ each.matrix(model))  # with the outputs of the model's own map
            parts[each.name].append((own, weight))
            if rule == "mean":  # only the sum is in memory
                parts[each.name] = [(combine(*zip(*parts[each.name], strict=True)), 1.0)]
    for each in problem.affine_maps:
        moments, shares = zip(*parts[each.name], strict=True)
        pooled = robust_moments(moments, shares, rule, byzantine)
        merged = each.with_matrix(merged, solve(pooled, each.matrix(merged), ridge))
    return MergeResult.network(merged, permutations, meter.traffic)


@method(
    "least_squares",
    "Least squares layer by layer",
    source="this project",
    needs=MOMENTS,
    asks="moments with labels, once for each map",
)
def least_squares(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    ridge: float = 1e-3,
    rule: str = "mean",
    byzantine: int = 1,
) -> MergeResult:
    """Fits one affine map after the other; each takes a message to and from each data holder.

    Each map is fitted on its inputs in the merged network. Targets of the last map are the labels.
    Other maps have their outputs, before the activation, in each model on that model's own data.

    Args:
        problem: The models, their data holders and affine maps.
        alignment: See `regmean`, as for the others.
        ridge: Weight of the former matrix.
        rule: Aggregation of moments.
        byzantine: Number for the rule.

    Raises:
        MergeError: `alignment` is unknown, or data holders, affine maps or labels are missing.
        MessageError: A data holder's answer is invalid.
    """
    require_moments(problem)
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    models = problem.permuted(permutations)
    merged: State = robust_state(problem, permutations, rule, byzantine)
    pool = partial(robust_moments, rule=rule, byzantine=byzantine)
    *hidden, last = problem.affine_maps
    for each in hidden:
        merged = fitted(problem, each, merged, "outputs", models, ridge, meter, pool)
    merged = fitted(problem, last, merged, "labels", models, ridge, meter, pool)
    return MergeResult.network(dict(merged), permutations, meter.traffic)


@method(
    "head_refit",
    "Average with a fitted last layer",
    source="this project",
    needs=MOMENTS,
    start="common",
    asks="moments with labels of the last map",
)
def head_refit(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    of: str = "average",
    ridge: float = 1e-3,
    rule: str = "mean",
    byzantine: int = 1,
) -> MergeResult:
    """Fits the last affine map to the labels, on its inputs in the average of the models.

    Args:
        problem: The models, their data holders and affine maps.
        alignment: See `regmean`, as for the others.
        of: "average", or "base": the model from which all were trained. An untrained base is the
            control experiment of random features, without any robot's training.
        ridge: Weight of the former matrix.
        rule: Aggregation of moments.
        byzantine: Number for the rule.

    Raises:
        MergeError: `alignment` or `of` is unknown; data holders, affine maps, labels or the base
            are missing.
        MessageError: A data holder's answer is invalid.
    """
    require_moments(problem, problem.affine_maps[-1:])
    require_choice("The model with the last layer", of, ("average", "base"))
    base: State | None = required(problem, "base") if of == "base" else None
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    begin = robust_state(problem, permutations, rule, byzantine) if base is None else base
    pool = partial(robust_moments, rule=rule, byzantine=byzantine)
    last = problem.affine_maps[-1]
    merged = fitted(problem, last, begin, "labels", (), ridge, meter, pool)
    return MergeResult.network(merged, permutations, meter.traffic)


def fitted(
    problem: MergeProblem,
    each: AffineMap,
    merged: State,
    target: Target,
    teachers: Sequence[State],
    ridge: float,
    meter: TrafficMeter,
    pool: Pool,
) -> dict[str, torch.Tensor]:
    """Returns the merged model with one map fitted on the data of all holders.

    The map's inputs are measured in the merged model. Targets "outputs" are its teachers',
    one for each holder; other targets need no teachers. The ridge is the weight of the former
    matrix.
    """
    queries = [
        MomentQuery(merged, (each.name,), target, teacher)
        for teacher in teachers or [None] * len(problem.models)
    ]
    answers = meter.ask_all_moments(problem.data_holders, queries, problem.affine_maps)
    of_holders = (measured[each.name] for measured in answers)
    moments = pool(of_holders, problem.normalized_weights.tolist())
    return each.with_matrix(merged, solve(moments, each.matrix(merged), ridge))
