"""Optimizers of the server, which takes a step towards a round's merge.

Steps towards averages are FedAvg (McMahan et al. 2017), with momentum FedAvgM (Hsu et al. 2019).
Adaptive steps are FedAdam (Reddi et al. 2021, Algorithm 2, without bias correction). Any other
merge may replace the average.
"""

from collections.abc import Mapping

import torch

from fleet_merging.buffers import learned_tensors
from fleet_tools.baselines.federated.round_config import ServerConfig
from fleet_tools.baselines.training.state import Tensors

MOMENTUM, VARIANCE = "momentum", "variance"

ServerState = Mapping[str, Tensors]
"""An optimizer's state between rounds: tensors like the weights, by `MOMENTUM` and `VARIANCE`;
empty before its first step."""


def server_step(
    config: ServerConfig, before: Tensors, merged: Tensors, state: ServerState
) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]:
    """Returns the weights after a step from those before a round towards the merged ones.

    Args:
        config: The optimizer.
        before: Weights from which the robots began the round.
        merged: Merged weights of the round.
        state: State after the step before.

    Returns:
        Weights in the types of the merged ones, which also give all entries that are not learned;
        and the state after this step, float64.
    """
    weights = dict(merged)
    after: dict[str, dict[str, torch.Tensor]] = {name: {} for name in state_names(config)}
    for name, tensor in learned_tensors(merged).items():
        change = tensor.double() - before[name].double()
        zero = torch.zeros_like(change)
        momentum = state[MOMENTUM][name] if state else zero
        if config.optimizer == "momentum":
            momentum = config.momentum * momentum + change
            step = momentum
        else:
            momentum = config.momentum * momentum + (1 - config.momentum) * change
            variance = state[VARIANCE][name] if state else zero + config.smallest_step**2
            beta = config.second_momentum
            variance = beta * variance + (1 - beta) * change.square()
            after[VARIANCE][name] = variance
            step = momentum / (variance.sqrt() + config.smallest_step)
        after[MOMENTUM][name] = momentum
        weights[name] = (before[name].double() + config.learning_rate * step).to(tensor)
    return weights, after


def state_names(config: ServerConfig) -> tuple[str, ...]:
    """Returns the names of the entries in an optimizer's state."""
    return (MOMENTUM,) if config.optimizer == "momentum" else (MOMENTUM, VARIANCE)
