"""A merging method of one's own: robots are matched, and the median of them counts, not the mean.

python -m fleet_tools.baselines.merge a.safetensors b.safetensors c.safetensors \
    --method examples.own_method.matched_median:matched_median --output merged.safetensors
"""

import torch

from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import Fleet, Merged


def matched_median(fleet: Fleet, *, rounds: int = 20) -> Merged:
    """Takes the median of every weight over matched models: one that went astray moves nothing.

    Args:
        fleet: The models; their weights in averages are used for matching alone.
        rounds: Of matching, at most; an option, as every keyword is.
    """
    matched = merge("git_rebasin", fleet, rounds=rounds)
    models = fleet.permuted(matched.permutations)
    state = {
        name: torch.quantile(torch.stack([model[name] for model in models]), 0.5, dim=0)
        for name in models[0]
    }
    return Merged(state, matched.permutations, matched.traffic)
