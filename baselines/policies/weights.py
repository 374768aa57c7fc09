"""Checks that weights are those of a network, before any are loaded."""

from collections.abc import Mapping

import torch

from fleet_tools.baselines.policies.errors import CheckpointError

_MAX_SHOWN = 6


def require_weights(
    expected: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> None:
    """Checks that weights are finite, and have the names, shapes and dtypes of a network.

    Args:
        expected: State dict of the network; its numbers do not matter.
        weights: The weights to check.

    Raises:
        CheckpointError: They differ; the message names the tensors.
    """
    errors = [f"{name} is missing" for name in expected if name not in weights]
    for name, tensor in weights.items():
        if name not in expected:
            errors.append(f"{name} does not belong to it")
        elif (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            errors.append(f"{name} is {_brief(tensor)}, not {_brief(expected[name])}")
        elif not bool(torch.isfinite(tensor).all()):
            errors.append(f"{name} holds NaN or infinity")
    if errors:
        more = f"; and {len(errors) - _MAX_SHOWN} more" if len(errors) > _MAX_SHOWN else ""
        raise CheckpointError(
            f"The weights are not those of this network: {'; '.join(errors[:_MAX_SHOWN])}{more}."
        )


def _brief(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
