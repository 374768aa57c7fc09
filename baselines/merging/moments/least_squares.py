"""The matrix of an affine map that moments determine: ridge regression towards a given matrix."""

import torch

from fleet_tools.baselines.merging.moments.measurement import Moments


def solve(moments: Moments, prior: torch.Tensor, ridge: float) -> torch.Tensor:
    """Returns the M that minimizes the mean of (x M - t)² + ridge s (M - prior)².

    Here s is the mean square of the entries of x. So directions in which there are no inputs keep
    the prior. Moments with noise need a ridge that is larger than the noise.

    Args:
        moments: Moments of inputs x and targets t.
        prior: Matrices (groups, in + 1, out).
        ridge: Weight of the prior, positive.

    Returns:
        Matrices (groups, in + 1, out), float64.
    """
    solved = []
    for G, C, M in zip(moments.inputs, moments.targets, prior, strict=True):
        damping = ridge * float(G.diagonal().mean()) * torch.eye(len(G), dtype=G.dtype)
        factor, failed = torch.linalg.cholesky_ex(G + damping)
        if failed:  # noise has made some directions negative
            values, vectors = torch.linalg.eigh(G)
            G = vectors * values.clamp(min=0) @ vectors.T
            factor = torch.linalg.cholesky(G + damping)
        solved.append(M + torch.cholesky_solve(C - G @ M, factor))
    return torch.stack(solved)
