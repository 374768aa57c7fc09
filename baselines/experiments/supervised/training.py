"""Training and evaluation of networks on labelled examples.

Language models learn the next character at each position of a text. As in LEAF, they are evaluated
on the character after its end.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from fleet_merging.modules import recompute
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.queries.data_holder import LocalDataHolder, Policy
from fleet_merging.symmetry.table import State
from fleet_tools.baselines.experiments.supervised.labelled import Labelled
from fleet_tools.baselines.experiments.supervised.networks import Network
from fleet_tools.config.values import Count, Positive, Value

_PASS = 2000
"""Number of examples in an evaluation pass."""

_MOMENT_PASS = 250
"""The same where second moments are measured: a convolution reads many patches of an image."""


class TrainingSettings(Value):
    """Settings of training by AdamW, with gradients clipped to norm 1.

    Attributes:
        epochs: Number of epochs.
        rate: Learning rate.
        batch: Largest number of examples in a batch.
    """

    epochs: Count = 40
    rate: Positive = 1e-3
    batch: Count = 64


def initial_weights(network: Network, seed: int) -> dict[str, torch.Tensor]:
    """Returns new weights; torch's global generator is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network.make().state_dict()


def train(
    network: Network, start: State, data: Labelled, settings: TrainingSettings, seed: int
) -> dict[str, torch.Tensor]:
    """Returns trained weights.

    Args:
        network: The architecture.
        start: Initial weights, which are not changed.
        data: Training data.
        settings: Settings of training.
        seed: Seed of the order of the examples.
    """
    model = network.make()
    model.load_state_dict(start)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings.epochs):
        for indices in torch.randperm(len(data), generator=generator).split(settings.batch):
            if len(indices) < 2:  # too few for a BatchNorm
                continue
            optimizer.zero_grad()
            batch = data.subset(indices)
            _cross_entropy(model(batch.inputs), batch.targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def evaluate(network: Network, state: State, data: Labelled) -> tuple[float, float]:
    """Returns the mean cross entropy, and the accuracy from 0 to 1, of the labels."""
    model = network.make()
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(inputs) for inputs in data.inputs.split(_PASS)])
        if logits.dim() == 3:  # of each position of texts
            logits = logits[:, -1]
        loss = nn.functional.cross_entropy(logits, data.labels)
    return float(loss), float((logits.argmax(1) == data.labels).double().mean())


def statistics_update(network: Network, data: Labelled) -> Callable[[State], State]:
    """Returns a function that measures the BatchNorm statistics of averaged weights on data."""
    return lambda state: recompute(network.make(), state, data.inputs.split(_PASS))


def data_holder(network: Network, data: Labelled, batch: int = 128) -> LocalDataHolder:
    """Returns a data holder of examples, which draws a batch if a seed is given.

    Labels are one-hot: least squares on them is a classifier.
    """

    def loss(policy: Policy, seed: int | None) -> torch.Tensor:
        chosen = data
        if seed is not None:
            generator = np.random.default_rng(seed)
            chosen = data.subset(generator.integers(len(data), size=min(batch, len(data))))
        return _cross_entropy(policy(chosen.inputs), chosen.targets)

    def batches() -> Iterator[LabelledBatch]:
        for indices in torch.arange(len(data)).split(_MOMENT_PASS):
            batch = data.subset(indices)
            one_hot = nn.functional.one_hot(batch.targets.flatten(), data.shape.classes)
            yield LabelledBatch((batch.inputs,), one_hot.double())

    return LocalDataHolder(network.make().train(), loss, batches)
