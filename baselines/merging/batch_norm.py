"""Statistics of BatchNorm layers, which an average of models has to measure again."""

from collections.abc import Iterable
from typing import Any

import torch

from fleet_tools.baselines.merging.modules import copied, load_tensors, tensors_of, uncompiled
from fleet_tools.baselines.merging.symmetry.table import State


@torch.no_grad()
def recompute(
    model: torch.nn.Module, state: State, batches: Iterable[Any]
) -> dict[str, torch.Tensor]:
    """Returns the same weights with running means and variances measured on data.

    The activations of an averaged model have another variance than those of the models, so the
    averaged statistics fit no model (Jordan et al. 2023). All batches count the same.

    Args:
        model: The architecture; a copy of it is run.
        state: The weights.
        batches: For each batch the model's argument, or a tuple of its arguments. Without batches,
            or without layers that track statistics, the state is copied as it is.

    Returns:
        A new state dict.
    """
    trial = copied(model)
    load_tensors(trial, state)
    norms = [
        module
        for module in trial.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    batches = list(batches) if norms else []
    for norm in norms if batches else []:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over batches
        norm.train()
    with uncompiled():
        for batch in batches:
            trial(*(batch if isinstance(batch, tuple) else (batch,)))
    return {name: tensor.clone() for name, tensor in tensors_of(trial).items()}
