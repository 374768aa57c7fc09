"""The loss of trajectories, and the loop that minimizes it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from fleet_merging.moments.measurement import LabelledBatch
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.encoders import PointNetEncoder
from fleet_tools.baselines.policies.heads import regression
from fleet_tools.baselines.policies.layout import entries_of_sight
from fleet_tools.baselines.policies.part_configs import (
    HeadConfig,
    LinearHeadConfig,
    PointNetConfig,
)
from fleet_tools.baselines.training.augmentation import augmented, some_hidden
from fleet_tools.baselines.training.config import TrainingConfig, TuningConfig
from fleet_tools.baselines.training.demonstrations import Batch, Trajectories
from fleet_tools.baselines.training.state import (
    DivergedError,
    Tensors,
    TrainingState,
    moments_of,
    set_moments,
)
from fleet_tools.baselines.training.tuning import tuned_network

DRAWS = 32
"""Number of draws of times and noise for each step, in fits of last maps."""

FEW_DRAWS = 4
"""The number in other moments, which have many rows for each number that is fitted."""


class Batches(Protocol):
    """Interface of training data, see `Trajectories`."""

    @property
    def device(self) -> torch.device:
        """Device of the batches."""
        ...

    def order(self, size: int, generator: np.random.Generator | None) -> list[np.ndarray]:
        """Returns the batches of a pass over all data, each as indices of its items."""
        ...

    def batch(self, items: np.ndarray) -> Batch:
        """Returns items."""
        ...


def imitation_losses(
    network: Callable[..., Any], batch: Batch, head: HeadConfig, generator: np.random.Generator
) -> torch.Tensor:
    """Returns the losses of a network on demonstrations.

    With a linear head it is the paper's loss (section 2), as a mean over the entries of an action,
    or of absolute errors. The hidden state is the network's own from the first step of an episode.
    `heads` has the losses of other heads. Of a chunk, it is the mean over the actions to imitate; a
    head does not read the others.

    Args:
        network: Network of a policy.
        batch: Trajectories.
        head: Configuration of its head.
        generator: Draws times and noise for the head, see `draws`.

    Returns:
        (B, T) float32, zeros where there is no step to imitate.
    """
    demonstrated = (batch.actions * batch.imitated[..., None]).flatten(2)
    asked = regression(head, demonstrated, generator)
    answers, _ = network(batch.observations, None, *asked.inputs)
    errors = asked.losses(answers.float()).unflatten(-1, batch.actions.shape[2:])
    counts = batch.imitated.sum(-1).clamp(min=1)
    return (errors.mean(-1) * batch.imitated).sum(-1) / counts


def labelled(
    batch: Batch, head: HeadConfig, generator: np.random.Generator, count: int = DRAWS
) -> LabelledBatch:
    """Returns the regression problem of the head's last map, for closed forms by moments.

    Its squared error is the loss of `imitation_losses`. A head that learns by absolute errors has
    the same problem, since the median of actions has no closed form.

    Args:
        batch: Trajectories.
        head: Configuration of the head.
        generator: See `imitation_losses`.
        count: Number of draws of times and noise for each step, for heads that use them.
    """
    demonstrated = (batch.actions * batch.imitated[..., None]).flatten(2)
    weights = batch.imitated / batch.imitated.sum(-1, keepdim=True).clamp(min=1)  # (B, T, chunk)
    if not isinstance(head, LinearHeadConfig):
        demonstrated, weights = (
            each.unsqueeze(2).expand(-1, -1, count, -1) for each in (demonstrated, weights)
        )
    asked = regression(head, demonstrated, generator)
    arguments, labels = (batch.observations, None, *asked.inputs), asked.target.flatten(0, -2)
    rows = weights.flatten(0, -2)
    return LabelledBatch(arguments, labels, rows[:, 0] if rows.shape[1] == 1 else rows)


def draws(seed: int, epoch: int, batch: int) -> np.random.Generator:
    """Returns the generator of times and noise for the head in a batch.

    Args:
        seed: Seed of training.
        epoch: Number of epochs done.
        batch: Number of batches of the epoch done.
    """
    return np.random.default_rng((seed, epoch, batch, 1))  # 1: not the draw of the order


def batches_of(trajectories: Batches, config: TrainingConfig, epochs_done: int) -> list[np.ndarray]:
    """Returns the batches of the next epoch, see `Trajectories.order`."""
    generator = np.random.default_rng((config.seed, epochs_done))
    return trajectories.order(config.batch_size, generator)


def validate(
    blueprint: Blueprint, trajectories: Trajectories, config: TrainingConfig, weights: Tensors
) -> float:
    """Returns the mean loss of a policy over all steps of trajectories that are to be imitated."""
    network, head = _network(blueprint, weights, trajectories.device).eval(), blueprint.config.head
    squares = 0.0
    with torch.inference_mode():
        for number, items in enumerate(trajectories.order(config.batch_size, None)):
            batch = _without_padding(trajectories.batch(items), blueprint)
            generator = draws(0, 0, number)
            with _precision(config, trajectories.device):
                squares += imitation_losses(network, batch, head, generator).double().sum().item()
    return squares / trajectories.steps


def train(
    blueprint: Blueprint,
    trajectories: Batches,
    config: TrainingConfig,
    state: TrainingState,
    *,
    epochs: int | None = None,
    after_batch: Callable[[Callable[[], TrainingState]], bool] = lambda snapshot: True,
    tuning: TuningConfig | None = None,
) -> TrainingState:
    """Trains from a state on.

    The same arguments give the same bits on one machine with one number of threads, in one call or
    in several.

    Args:
        blueprint: Blueprint of the policy.
        trajectories: Training data.
        config: Configuration of training.
        state: The first state; it is not changed.
        epochs: Number of epochs to complete; None for the rest of the configuration's.
        after_batch: Called after each batch with a function that returns a copy of the present
            state. Training ends if it returns False, even within an epoch.
        tuning: The trained weights, see `tuning.begun`; None for all.

    Returns:
        The last state.

    Raises:
        DivergedError: The loss, its gradient or the weights are not finite; no state holds such
            weights.
    """
    network = _network(blueprint, state.weights, trajectories.device, config.compile, tuning)
    network.train()
    named = {name: each for name, each in network.named_parameters() if each.requires_grad}
    names, parameters = list(named), list(named.values())
    optimizer = torch.optim.Adam(parameters)
    set_moments(optimizer, names, state.moments)
    average = _average(config, state, named)
    if config.compile:
        network.compile()

    def snapshot() -> TrainingState:
        weights = {name: each.detach().cpu().clone() for name, each in network.state_dict().items()}
        diverged = [name for name, each in weights.items() if not torch.isfinite(each).all()]
        if diverged:
            raise DivergedError(_message(state, f"{diverged[0]} is no longer finite", config))
        averages = {name: each.detach().cpu().clone() for name, each in average.items()}
        moments = moments_of(optimizer, names)
        return replace(state, weights=weights, moments=moments, average=averages)

    last = config.epochs if epochs is None else state.epoch + epochs
    while state.epoch < last:
        order = batches_of(trajectories, config, state.epoch)
        for items in order[state.batch :]:
            batch = _without_padding(trajectories.batch(items), blueprint)
            batch = _augmented(batch, blueprint, config, state)
            for group in optimizer.param_groups:
                group["lr"] = config.rate(state.epoch + state.batch / len(order))
            with _precision(config, trajectories.device):
                generator = draws(config.seed, state.epoch, state.batch)
                errors = imitation_losses(network, batch, blueprint.config.head, generator)
            steps = max(int(batch.mask.sum()), 1)  # a batch may have none to imitate
            optimizer.zero_grad()
            (errors.sum() / steps).backward()
            norm = nn.utils.clip_grad_norm_(parameters, config.gradient_norm)
            if not torch.isfinite(norm):
                loss = errors.sum().item() / steps
                found = f"the loss is {loss:g}, and the norm of its gradient {norm.item():g}"
                raise DivergedError(_message(state, found, config))
            optimizer.step()
            _update(average, named, config, optimizer)
            state = _after(state, errors.double().sum().item(), steps, len(order))
            if not after_batch(snapshot):
                return snapshot()
    return snapshot()


def _without_padding(batch: Batch, blueprint: Blueprint) -> Batch:
    """Returns a batch without the points of steps after the last ones to imitate.

    No loss depends on these steps, and clouds without points cost nothing.
    """
    names = blueprint.names("cloud")
    if not isinstance(blueprint.config.clouds, PointNetConfig) or batch.mask.shape[1] == 1:
        return batch
    matters = batch.mask.flip(1).cummax(1).values.flip(1)[..., None, None]
    clouds = {name: torch.where(matters, batch.observations[name], 0.0) for name in names}
    return replace(batch, observations={**batch.observations, **clouds})


def _augmented(
    batch: Batch, blueprint: Blueprint, config: TrainingConfig, state: TrainingState
) -> Batch:
    """Returns the next batch with augmentation, drawn by the seed and the batch's number."""
    changes = [
        *((name, config.clouds) for name in blueprint.names("cloud") if config.clouds.any),
        *((name, config.images) for name in blueprint.names("image") if config.images.any),
    ]
    if not changes and not blueprint.optional:
        return batch
    entropy = np.random.SeedSequence([config.seed, state.epoch, state.batch])
    seed = int(entropy.generate_state(1, np.uint64)[0])
    generator = torch.Generator().manual_seed(seed)
    observations = augmented(batch.observations, changes, generator)
    absent = {name: torch.from_numpy(blueprint.absent(name)) for name in blueprint.optional}
    sights = entries_of_sight(blueprint.observation)
    return replace(batch, observations=some_hidden(observations, absent, sights, generator))


def _average(
    config: TrainingConfig, state: TrainingState, parameters: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Returns the moving averages of a state, on the device; empty without averaging."""
    if config.ema_decay == 0:
        return {}
    return {
        name: state.average.get(name, each.detach()).to(each.device, copy=True)
        for name, each in parameters.items()
    }


@torch.no_grad()
def _update(
    average: dict[str, torch.Tensor],
    parameters: Mapping[str, nn.Parameter],
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Moves averages towards the weights after a step."""
    if not average:
        return
    present = list(parameters.values())
    updates = int(optimizer.state[present[0]]["step"])
    move = get_ema_multi_avg_fn(config.decay(updates - 1))
    move(tuple(average.values()), tuple(present), updates)


def _message(state: TrainingState, found: str, config: TrainingConfig) -> str:
    return (
        f"After {state.epoch} epochs and {state.batch} batches, {found}. Give a smaller learning "
        f"rate than {config.learning_rate:g}."
    )


def _after(state: TrainingState, squares: float, steps: int, batches: int) -> TrainingState:
    if state.batch > 0:  # sums of an epoch last until the first batch of the next
        squares, steps = state.squares + squares, state.steps + steps
    state = replace(state, batch=state.batch + 1, squares=squares, steps=steps)
    return replace(state, epoch=state.epoch + 1, batch=0) if state.batch == batches else state


def _network(
    blueprint: Blueprint,
    weights: Tensors,
    device: torch.device,
    compiled: bool = False,
    tuning: TuningConfig | None = None,
) -> nn.Module:
    network = tuned_network(blueprint.create(), tuning)
    network.load_state_dict(weights)
    for module in network.modules():
        if isinstance(module, PointNetEncoder):
            module.by_winners = device.type == "cpu" and not compiled  # measured there alone
    return network.to(device)


def _precision(config: TrainingConfig, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")
