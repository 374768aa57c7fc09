"""Statistics of BatchNorm, which an average of models must measure anew."""

import copy
from collections.abc import Iterable
from typing import Any

import torch

from fleet_tools.baselines.merging.symmetry.table import State


@torch.no_grad()
def recompute(model: torch.nn.Module, state: State, batches: Iterable[Any]) -> dict:
    """The same weights, with running means and variances of what they now make of data.

    An average of models has activations of another spread than any of them, so the averaged
    statistics fit none (Jordan et al. 2023). Each batch counts the same.

    Args:
        model: The architecture; a copy of it is run.
        state: Its weights.
        batches: The model's argument, or a tuple of its arguments, for each batch. Without any,
            or where nothing tracks statistics, the state is copied as it is.

    Returns:
        A new state dict.
    """
    trial = copy.deepcopy(model).eval()
    trial.load_state_dict(state)
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
    for batch in batches:
        trial(*(batch if isinstance(batch, tuple) else (batch,)))
    return {name: tensor.clone() for name, tensor in trial.state_dict().items()}
