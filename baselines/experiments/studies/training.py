"""Training and judging the studies' networks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fleet_tools.baselines.experiments.studies.digits import Digits
from fleet_tools.baselines.experiments.studies.networks import Network
from fleet_tools.baselines.merging.batch_norm import recompute
from fleet_tools.baselines.merging.queries.data_holder import LocalRobot
from fleet_tools.baselines.merging.symmetry.table import State


@dataclass(frozen=True)
class Training:
    """How a network is trained: AdamW, with its gradient clipped to norm 1.

    Attributes:
        epochs: Over its data.
        rate: Step size.
        batch: Size, at most.
    """

    epochs: int = 40
    rate: float = 1e-3
    batch: int = 64


def initial(network: Network, seed: int) -> dict[str, torch.Tensor]:
    """New weights; the generator that all of torch shares is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network.make().state_dict()


def train(
    network: Network, start: State, digits: Digits, training: Training, seed: int
) -> dict[str, torch.Tensor]:
    """Trains from given weights, which stay as they are.

    Args:
        network: The architecture.
        start: Its weights at first.
        digits: To train with.
        training: How.
        seed: Of the order of the pictures.
    """
    model = network.make()
    model.load_state_dict(start)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), training.rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(training.epochs):
        for batch in torch.randperm(len(digits), generator=generator).split(training.batch):
            if len(batch) < 2:  # a BatchNorm cannot do with one
                continue
            optimizer.zero_grad()
            own = digits.chosen(batch)
            nn.functional.cross_entropy(model(own.pictures), own.labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def judge(network: Network, state: State, digits: Digits) -> tuple[float, float]:
    """The mean cross entropy, and the accuracy from 0 to 1."""
    model = network.make()
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        logits = model(digits.pictures)
        loss = nn.functional.cross_entropy(logits, digits.labels)
    return float(loss), float((logits.argmax(1) == digits.labels).double().mean())


def finish(network: Network, digits: Digits) -> Callable[[State], State]:
    """Measures BatchNorm's statistics anew; what every average goes through."""
    return lambda state: recompute(network.make(), state, [digits.pictures])


def robot(network: Network, digits: Digits, batch: int = 128) -> LocalRobot:
    """One who holds pictures, and draws so many of them when a seed is given."""

    def loss(policy, seed: int | None) -> torch.Tensor:
        own = digits
        if seed is not None:
            generator = np.random.default_rng(seed)
            own = digits.chosen(generator.integers(len(digits), size=min(batch, len(digits))))
        return nn.functional.cross_entropy(policy(own.pictures), own.labels)

    return LocalRobot(network.make().train(), loss)
