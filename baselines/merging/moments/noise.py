"""Gaussian noise in moments, which a data holder adds before it sends them."""

from collections.abc import Mapping

import numpy as np
import torch

from fleet_tools.baselines.merging.moments.measurement import Moments


def with_noise(
    moments: Mapping[str, Moments], noise: float, seed: tuple[int, ...]
) -> dict[str, Moments]:
    """Returns moments with noise, the same on both sides of the diagonal of those of inputs.

    Args:
        moments: Moments by map.
        noise: Standard deviation, relative to the root mean square of each matrix's entries.
        seed: Seed of the draws.
    """
    generator = np.random.default_rng(seed)

    def noisy(values: torch.Tensor) -> torch.Tensor:
        scale = noise * float(values.square().mean().sqrt())
        return values + scale * torch.from_numpy(generator.standard_normal(tuple(values.shape)))

    def symmetric(values: torch.Tensor) -> torch.Tensor:
        upper = torch.triu(noisy(values))
        return upper + torch.triu(upper, 1).transpose(-2, -1)

    return {
        name: Moments(symmetric(each.inputs), noisy(each.targets)) for name, each in moments.items()
    }
