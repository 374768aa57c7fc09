"""Layer-by-layer least squares on the merged network's own inputs, and the refit of its last layer.

RegMean asks each layer to return what the models' layers return on the models' own inputs. In the
merged network, inputs differ, since the layers before have changed. Here each layer is fitted in
turn on the inputs that it has there, towards the outputs (before the activation) that the same
layer of each model has on that model's own data; the last one towards the labels. Networks are
pruned and quantized with such fits (He et al. 2017, eq. 5).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.alignment import align, require_moments
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.least_squares import solve
from fleet_tools.baselines.merging.moments.measurement import Moments, Target
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import TrafficMeter
from fleet_tools.baselines.merging.queries.query import MomentQuery
from fleet_tools.baselines.merging.robust import robust_moments, robust_state
from fleet_tools.baselines.merging.symmetry.table import State


def least_squares(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    ridge: float = 1e-3,
    labels: bool = True,
    rule: str = "mean",
    byzantine: int = 1,
) -> MergeResult:
    """Fits one affine map after the other; each takes a message to and from each data holder.

    Args:
        problem: The models, their data holders and affine maps.
        alignment: "none", "weights" or "activations", see `alignment.align`.
        ridge: Weight of the average of the matrices, which determines a map in directions without
            inputs; relative to the mean square of the inputs.
        labels: Whether the last map is fitted to the labels, not to the models' outputs.
        rule: How one is made of all robots' moments, and of their weights; see `robust`.
        byzantine: Largest number of robots that may send anything.

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
        merged = _fitted(problem, each, merged, "outputs", models, ridge, meter, pool)
    target: Target = "labels" if labels else "outputs"
    merged = _fitted(problem, last, merged, target, models, ridge, meter, pool)
    return MergeResult.network(dict(merged), permutations, meter.traffic)


def head_refit(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    of: str = "average",
    ridge: float = 1e-3,
    rule: str = "mean",
    byzantine: int = 1,
) -> MergeResult:
    """Fits the last affine map to the labels, on what it reads in the average of the models.

    Args:
        problem: The models, their data holders and affine maps.
        alignment: "none", "weights" or "activations", see `alignment.align`.
        of: "average", or "base": the model from which all were trained. An untrained base makes the
            control experiment of random features, in which no robot's training is used.
        ridge: Weight of the former matrix, relative to the mean square of the inputs.
        rule: How one is made of all robots' moments, and of their weights; see `robust`.
        byzantine: Largest number of robots that may send anything.

    Raises:
        MergeError: `alignment` or `of` is unknown; data holders, affine maps, labels or the base
            are missing.
        MessageError: A data holder's answer is invalid.
    """
    require_moments(problem, problem.affine_maps[-1:])
    if of not in ("average", "base"):
        raise MergeError(f"The last layer of {of!r} is to be fitted; known are 'average', 'base'.")
    base = problem.require_base() if of == "base" else None
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    begin = robust_state(problem, permutations, rule, byzantine) if base is None else base
    pool = partial(robust_moments, rule=rule, byzantine=byzantine)
    last = problem.affine_maps[-1]
    merged = _fitted(problem, last, begin, "labels", (), ridge, meter, pool)
    return MergeResult.network(merged, permutations, meter.traffic)


def _fitted(
    problem: MergeProblem,
    each: AffineMap,
    merged: State,
    target: Target,
    teachers: Sequence[State],
    ridge: float,
    meter: TrafficMeter,
    pool: Callable[[Iterable[Moments], Sequence[float]], Moments],
) -> dict[str, torch.Tensor]:
    """Returns the merged model with one map fitted on the data of all holders."""
    of_holders = (
        meter.ask_moments(
            holder,
            MomentQuery(merged, (each.name,), target, teachers[index] if teachers else None),
            problem.affine_maps,
        )[each.name]
        for index, holder in enumerate(problem.data_holders)
    )
    moments = pool(of_holders, problem.normalized_weights.tolist())
    return each.with_matrix(merged, solve(moments, each.matrix(merged), ridge))
