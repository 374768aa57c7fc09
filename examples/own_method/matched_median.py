"""A user's own merging method: models are matched, and their median is taken, not their mean.

python -m fleet_tools.baselines.merge a.safetensors b.safetensors c.safetensors \
    --method examples.own_method.matched_median:matched_median --output merged.safetensors
"""

import torch

from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult


def matched_median(problem: MergeProblem, *, rounds: int = 20) -> MergeResult:
    """Returns the median of every weight over matched models, which a single outlier cannot move.

    Args:
        problem: The models; their averaging weights are used for matching alone.
        rounds: Maximum number of rounds of matching; an option, as every keyword argument.
    """
    matched = merge("git_rebasin", problem, rounds=rounds)
    models = problem.permuted(matched.permutations)
    state = {
        name: torch.quantile(torch.stack([model[name] for model in models]), 0.5, dim=0)
        for name in models[0]
    }
    return MergeResult(state, matched.permutations, matched.traffic)
