"""Buffers of a state dict (not learned), and their treatment in a merge.

PyTorch's names identify them:

    running_mean, running_var       statistics of the data, with which only averages can be made: a
                                    sum with other signs or factors may have a negative variance
    _extra_state                    a module's own data: the same in all models
    weight_u beside weight_orig, or the singular vectors of a spectral norm, and the matrix of an
    parametrizations.weight.0       orthogonal parametrization: they belong to one weight only, so
    ._u, ._v, .base                 models with them are refused
"""

import torch

from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State

VARIANCE = "running_var"
EXTRA_STATE = "_extra_state"
_NOT_LEARNED = ("running_mean", VARIANCE, EXTRA_STATE)


def learned_tensors(state: State) -> dict[str, torch.Tensor]:
    """Returns the learned tensors of a model, on which optimizers may act.

    Methods and server optimizers average all others. Published FedOpt code does the same: FedML's
    has gradients only of parameters, and takes buffers from the average.
    """
    return {
        name: tensor
        for name, tensor in state.items()
        if tensor.is_floating_point() and name.rpartition(".")[2] not in _NOT_LEARNED
    }


def require_mergeable(state: State) -> None:
    """Raises a `MergeError` if a model has a spectral norm or an orthogonal parametrization."""
    for name in state:
        weight, last = name.removesuffix("_u"), name.rpartition(".")[2]
        parametrized = ".parametrizations." in f".{name}" and last in ("_u", "base")
        if parametrized or (weight != name and f"{weight}_orig" in state):
            raise MergeError(
                f"{name} belongs to a spectral norm or an orthogonal parametrization of one "
                "model's weight, so it has no merge. Remove it before you store the models, by "
                "torch.nn.utils.parametrize.remove_parametrizations or "
                "torch.nn.utils.remove_spectral_norm."
            )
