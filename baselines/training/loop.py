"""The loss of trajectories, and the loop that makes it small."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.errors import DivergedError
from fleet_tools.baselines.training.state import (
    Tensors,
    TrainingState,
    give_moments,
    moments_of,
)
from fleet_tools.baselines.training.trajectories import Batch, Trajectories


def squared_errors(network: nn.Module, batch: Batch) -> torch.Tensor:
    """How far a network is from what demonstrations did, when it goes through them step by step.

    The paper's loss (section 2), as a mean over an action's entries: the hidden state is the one
    to which the network itself comes from the episode's first step on.

    Args:
        network: Of a policy.
        batch: Trajectories.

    Returns:
        (B, T) float32, zeros where there is no step to imitate.
    """
    actions, _ = network(batch.observations)
    return (actions.float() - batch.actions).square().mean(-1) * batch.mask


def validate(
    blueprint: Blueprint, trajectories: Trajectories, config: TrainingConfig, weights: Tensors
) -> float:
    """Returns the mean loss of a policy over all steps of some trajectories."""
    network = _network(blueprint, weights, trajectories.device).eval()
    squares = 0.0
    with torch.inference_mode():
        for items in trajectories.order(config.batch_size, None):
            with _precision(config, trajectories.device):
                squares += squared_errors(network, trajectories.batch(items)).double().sum().item()
    return squares / trajectories.steps


def train(
    blueprint: Blueprint,
    trajectories: Trajectories,
    config: TrainingConfig,
    state: TrainingState,
    *,
    epochs: int | None = None,
    after_batch: Callable[[Callable[[], TrainingState]], bool] = lambda snapshot: True,
) -> TrainingState:
    """Trains from a state on.

    The same arguments give the same bits on one machine with so many threads, whether it is done
    in one call or in several.

    Args:
        blueprint: Of the policy.
        trajectories: To learn from.
        config: How.
        state: Where to begin; it stays as it is.
        epochs: How many more to complete; None goes on to the last that `config` has.
        after_batch: Is told of every batch, with what returns a copy of the state then. Training
            ends where it returns False, be it in the midst of an epoch.

    Returns:
        Where training is now.

    Raises:
        DivergedError: The loss, its gradient or the weights are not finite; no state ever holds
            such weights.
    """
    network = _network(blueprint, state.weights, trajectories.device).train()
    learning = {name: each for name, each in network.named_parameters() if each.requires_grad}
    parameters = list(learning.values())
    optimizer = torch.optim.Adam(parameters)
    give_moments(optimizer, list(learning), state.moments)

    def snapshot() -> TrainingState:
        weights = {name: each.detach().cpu().clone() for name, each in network.state_dict().items()}
        broken = [name for name, each in weights.items() if not torch.isfinite(each).all()]
        if broken:
            raise DivergedError(_diverged(state, f"{broken[0]} is not finite any more", config))
        return replace(state, weights=weights, moments=moments_of(optimizer, list(learning)))

    last = config.epochs if epochs is None else state.epoch + epochs
    while state.epoch < last:
        generator = np.random.default_rng((config.seed, state.epoch))
        order = trajectories.order(config.batch_size, generator)
        for items in order[state.batch :]:
            batch = trajectories.batch(items)
            for group in optimizer.param_groups:
                group["lr"] = config.rate(state.epoch + state.batch / len(order))
            with _precision(config, trajectories.device):
                errors = squared_errors(network, batch)
            steps = max(int(batch.mask.sum()), 1)  # it may be that none was meant
            optimizer.zero_grad()
            (errors.sum() / steps).backward()
            norm = nn.utils.clip_grad_norm_(parameters, config.gradient_norm)
            if not torch.isfinite(norm):
                loss = errors.sum().item() / steps
                found = f"the loss is {loss:g}, and its gradient's norm {norm.item():g}"
                raise DivergedError(_diverged(state, found, config))
            optimizer.step()
            state = _after(state, errors.double().sum().item(), steps, len(order))
            if not after_batch(snapshot):
                return snapshot()
    return snapshot()


def _diverged(state: TrainingState, found: str, config: TrainingConfig) -> str:
    return (
        f"After {state.epoch} epochs and {state.batch} batches, {found}. Give a smaller learning "
        f"rate than {config.learning_rate:g}."
    )


def _after(state: TrainingState, squares: float, steps: int, batches: int) -> TrainingState:
    if state.batch > 0:  # an epoch's sums begin with its first batch, and last until the next one's
        squares, steps = state.squares + squares, state.steps + steps
    state = replace(state, batch=state.batch + 1, squares=squares, steps=steps)
    return replace(state, epoch=state.epoch + 1, batch=0) if state.batch == batches else state


def _network(blueprint: Blueprint, weights: Tensors, device: torch.device) -> nn.Module:
    network = blueprint.create()
    network.load_state_dict(weights)
    return network.to(device)


def _precision(config: TrainingConfig, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")
