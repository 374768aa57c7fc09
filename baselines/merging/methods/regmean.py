"""RegMean: affine maps merged by least squares on their own inputs (Jin et al. 2023, eq. 2)."""

from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.methods.alignment import align, require_moments
from fleet_tools.baselines.merging.moments.least_squares import solve
from fleet_tools.baselines.merging.moments.measurement import Moments, combine
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import TrafficMeter
from fleet_tools.baselines.merging.queries.query import MomentQuery


def regmean(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    ridge: float = 1e-3,
    off_diagonal: float = 1.0,
) -> MergeResult:
    """Merges each affine map by M = (sum_i w_i G_i)^-1 sum_i w_i G_i M_i.

    G_i is the second moment of what the map reads in model i on its own data: one message from each
    data holder. M is the matrix whose outputs are closest to those of all models, each on its own
    inputs. Parameters of other layers are averaged.

    Args:
        problem: The models, their data holders and affine maps.
        alignment: "none", "weights" or "activations", see `alignment.align`.
        ridge: Weight of the average of the matrices, which determines M in directions without
            inputs; relative to the mean square of the inputs.
        off_diagonal: Factor of the entries of G_i off the diagonal; the source has 0.9 for language
            models.

    Raises:
        MergeError: `alignment` is unknown, or data holders or affine maps are missing.
        MessageError: A data holder's answer is invalid.
    """
    require_moments(problem)
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    models, weights = problem.permuted(permutations), problem.normalized_weights.tolist()
    names = tuple(each.name for each in problem.affine_maps)
    sums: dict[str, Moments] = {}
    for holder, model, weight in zip(problem.data_holders, models, weights, strict=True):
        measured = meter.ask_moments(holder, MomentQuery(model, names), problem.affine_maps)
        for each in problem.affine_maps:
            G = measured.pop(each.name).inputs
            G = off_diagonal * G + (1 - off_diagonal) * G.diagonal(dim1=1, dim2=2).diag_embed()
            own = Moments(G, G @ each.matrix(model))
            if total := sums.get(each.name):
                sums[each.name] = combine([total, own], [1.0, weight])
            else:
                sums[each.name] = combine([own], [weight])
    merged = average(models, problem.averaging_weights)
    for each in problem.affine_maps:
        merged = each.with_matrix(merged, solve(sums[each.name], each.matrix(merged), ridge))
    return MergeResult(merged, permutations, meter.traffic)
