"""Training and evaluation of the studies' networks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fleet_tools.baselines.experiments.studies.digits import Digits
from fleet_tools.baselines.experiments.studies.networks import Network
from fleet_tools.baselines.merging.batch_norm import recompute
from fleet_tools.baselines.merging.moments.measurement import LabelledBatch
from fleet_tools.baselines.merging.queries.data_holder import LocalDataHolder, Policy
from fleet_tools.baselines.merging.symmetry.table import State


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of training by AdamW, with gradients clipped to norm 1.

    Attributes:
        epochs: Number of epochs.
        rate: Learning rate.
        batch: Largest number of images in a batch.
    """

    epochs: int = 40
    rate: float = 1e-3
    batch: int = 64


def initial_weights(network: Network, seed: int) -> dict[str, torch.Tensor]:
    """Returns new weights; torch's global generator is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network.make().state_dict()


def train(
    network: Network, start: State, digits: Digits, settings: TrainingSettings, seed: int
) -> dict[str, torch.Tensor]:
    """Returns trained weights.

    Args:
        network: The architecture.
        start: Initial weights, which are not changed.
        digits: Training data.
        settings: Settings of training.
        seed: Seed of the order of the images.
    """
    model = network.make()
    model.load_state_dict(start)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings.epochs):
        for indices in torch.randperm(len(digits), generator=generator).split(settings.batch):
            if len(indices) < 2:  # too few for a BatchNorm
                continue
            optimizer.zero_grad()
            batch = digits.subset(indices)
            nn.functional.cross_entropy(model(batch.images), batch.labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def evaluate(network: Network, state: State, digits: Digits) -> tuple[float, float]:
    """Returns the mean cross entropy, and the accuracy from 0 to 1."""
    model = network.make()
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        logits = model(digits.images)
        loss = nn.functional.cross_entropy(logits, digits.labels)
    return float(loss), float((logits.argmax(1) == digits.labels).double().mean())


def statistics_update(network: Network, digits: Digits) -> Callable[[State], State]:
    """Returns a function that measures the BatchNorm statistics of averaged weights on data."""
    return lambda state: recompute(network.make(), state, [digits.images])


def data_holder(network: Network, digits: Digits, batch: int = 128) -> LocalDataHolder:
    """Returns a data holder of images, which draws a batch of them if a seed is given.

    Labels are one-hot: least squares on them is a classifier.
    """

    def loss(policy: Policy, seed: int | None) -> torch.Tensor:
        chosen = digits
        if seed is not None:
            generator = np.random.default_rng(seed)
            chosen = digits.subset(generator.integers(len(digits), size=min(batch, len(digits))))
        return nn.functional.cross_entropy(policy(chosen.images), chosen.labels)

    def batches() -> Iterator[LabelledBatch]:
        yield LabelledBatch((digits.images,), nn.functional.one_hot(digits.labels, 10).double())

    return LocalDataHolder(network.make().train(), loss, batches)
