"""Checks that weights are those of a network, before any are loaded."""

from collections.abc import Mapping

import torch

from fleet_tools.baselines.merging.soundness import defects
from fleet_tools.baselines.policies.errors import CheckpointError


def require_weights(
    expected: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> None:
    """Checks that weights are finite, and have the names, shapes and dtypes of a network.

    Args:
        expected: State dict of the network; its numbers do not matter.
        weights: The weights to check.

    Raises:
        CheckpointError: They have `soundness.defects`; the message names the tensors.
    """
    if found := defects(weights, expected):
        raise CheckpointError(f"The weights are not those of this network: {found}.")
