"""Whether weights are those of a network, said before any are taken over."""

from collections.abc import Mapping

import torch

from fleet_tools.baselines.policies.errors import CheckpointError

_SHOWN = 6


def require_weights(
    expected: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> None:
    """Sees to it that weights have the names, shapes and dtypes of a network, and are finite.

    Args:
        expected: The network's state dict; its numbers do not matter.
        weights: What it is to be given.

    Raises:
        CheckpointError: They are others; the message names where.
    """
    wrong = [f"{name} is missing" for name in expected if name not in weights]
    for name, tensor in weights.items():
        if name not in expected:
            wrong.append(f"{name} is none of its own")
        elif (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            wrong.append(f"{name} is {_brief(tensor)}, not {_brief(expected[name])}")
        elif not bool(torch.isfinite(tensor).all()):
            wrong.append(f"{name} holds NaN or infinity")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise CheckpointError(
            f"The weights are not those of this network: {'; '.join(wrong[:_SHOWN])}{more}."
        )


def _brief(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
