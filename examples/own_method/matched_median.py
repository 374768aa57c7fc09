"""A user's own merging method: models are matched, and their median is taken, not their mean.

python -m fleet_tools.baselines.merge a.safetensors b.safetensors c.safetensors \
    --method examples.own_method.matched_median:matched_median --output merged.safetensors
"""

import torch

from fleet_merging import MergeProblem, MergeResult, merge


def matched_median(problem: MergeProblem, *, rounds: int = 20) -> MergeResult:
    """Returns the median of every weight over matched models, which a single outlier cannot move.

    Args:
        problem: The models; their averaging weights are used for matching alone.
        rounds: Maximum number of rounds of matching; an option, as every keyword argument.
    """
    matched = merge("git_rebasin", problem, rounds=rounds)
    models = problem.permuted(matched.permutations)
    state = dict(matched.state)  # counts and masks have no median
    for name, tensor in state.items():
        if tensor.is_floating_point():
            stacked = torch.stack([model[name].double() for model in models])
            state[name] = torch.quantile(stacked, 0.5, dim=0).to(tensor)
    return MergeResult.network(state, matched.permutations, matched.traffic)
