"""Alignment at home: a robot permutes its own policy so that it is near a reference."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.matching.weights import match_weights
from fleet_tools.baselines.merging.methods.fleet_merge import TRUST, align_with_mean
from fleet_tools.baselines.merging.queries.data_holder import DataHolder
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry


def align(
    method: str,
    options: Mapping[str, Any],
    symmetry: Symmetry,
    own: State,
    reference: State,
    data_holder: DataHolder,
    seed: int,
) -> dict[str, torch.Tensor]:
    """Returns a robot's policy, permuted.

    Args:
        method: One of `config.METHODS`. "git_rebasin" matches the weights with the reference;
            "fleet_merge" begins there, and then descends for one epoch on the robot's own data, for
            which it needs the reference alone. The others do not align.
        options: Keyword arguments of fleet_merge, see `config.OPTIONS`.
        symmetry: Table of both policies.
        own: The robot's policy.
        reference: The reference.
        data_holder: The robot's own data.
        seed: Draws the order of matching and the points of the descent.
    """
    if method not in ("git_rebasin", "fleet_merge"):
        return dict(own)
    generator = np.random.default_rng(seed)
    permutation = match_weights(symmetry, reference, own, generator)
    if method == "fleet_merge":
        permutation = align_with_mean(
            symmetry,
            own,
            permutation,
            reference,
            data_holder,
            generator,
            options.get("descent") or Descent(),
            options.get("trust", TRUST),
        )
    return symmetry.apply(permutation, own)
