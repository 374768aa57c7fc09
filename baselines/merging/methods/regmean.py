"""RegMean: affine maps merged by least squares on their own inputs (Jin et al. 2023, eq. 2)."""

from fleet_tools.baselines.merging.methods.alignment import align, require_moments
from fleet_tools.baselines.merging.moments.least_squares import solve
from fleet_tools.baselines.merging.moments.measurement import Moments, combine
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import TrafficMeter
from fleet_tools.baselines.merging.queries.query import MomentQuery
from fleet_tools.baselines.merging.robust import robust_moments, robust_state


def regmean(
    problem: MergeProblem,
    *,
    alignment: str = "none",
    ridge: float = 1e-3,
    off_diagonal: float = 1.0,
    rule: str = "mean",
    byzantine: int = 1,
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
        rule: How one is made of all robots' moments, and of their other weights; see `robust`.
        byzantine: Largest number of robots that may send anything.

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
    for holder, model, weight in zip(problem.data_holders, models, weights, strict=True):
        measured = meter.ask_moments(holder, MomentQuery(model, names), problem.affine_maps)
        for each in problem.affine_maps:
            G = measured.pop(each.name).inputs
            G = off_diagonal * G + (1 - off_diagonal) * G.diagonal(dim1=1, dim2=2).diag_embed()
            parts[each.name].append((Moments(G, G @ each.matrix(model)), weight))
            if rule == "mean":  # the sum alone is in memory
                parts[each.name] = [(combine(*zip(*parts[each.name], strict=True)), 1.0)]
    for each in problem.affine_maps:
        moments, shares = zip(*parts[each.name], strict=True)
        pooled = robust_moments(moments, shares, rule, byzantine)
        merged = each.with_matrix(merged, solve(pooled, each.matrix(merged), ridge))
    return MergeResult.network(merged, permutations, meter.traffic)
