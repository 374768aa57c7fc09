"""A robot of a fleet: it has data, trains on them, and answers queries about models."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from fleet_merging.errors import MessageError
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_tools.baselines.federated.changes import change, require_streaming
from fleet_tools.baselines.federated.messages import (
    Answer,
    Assignment,
    Change,
    ChangeRequest,
    LocalUpdate,
    Message,
    RoundedChange,
    TrainRequest,
)
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights
from fleet_tools.baselines.policies.merged_checkpoints import network_like
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.part_configs import LinearHeadConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, content_digest
from fleet_tools.baselines.training.loop import (
    DRAWS,
    FEW_DRAWS,
    draws,
    imitation_losses,
    labelled,
    train,
)
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.baselines.training.tuning import begun, merged
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError

MAX_EPOCHS = 10**6
"""Largest number of epochs of a request."""


class FleetClient:
    """A `merging.queries.data_holder.DataHolder` that also trains.

    It computes in one thread, so that its bits do not depend on where it runs.

    Args:
        assignment: Its data and training. The first message opens the data.
        samples: Opens datasets, see `open_samples`; robots with the same function share its cache.
    """

    def __init__(
        self,
        assignment: Assignment,
        samples: "OpenSamples | None" = None,
    ) -> None:
        self._assignment, self._samples = assignment, samples or open_samples
        self._last: tuple[tuple[int, ...], LocalUpdate] | None = None

    @property
    def held_bytes(self) -> float:
        """Approximate memory that it holds: less than a megabyte until its data are opened."""
        opened = self.__dict__.get("_trajectories")  # as `cached_property` stores it
        remembered = 0 if self._last is None else _bytes(self._last[1].weights)
        return _OPEN_BYTES + remembered + (0 if opened is None else opened.nbytes)

    def answer(self, message: Message) -> Answer:
        """Returns the result of a request to train, or the answer to a query.

        Raises:
            MessageError: The message is neither, or is about another network.
            DatasetError: The data are missing, or differ from the assignment.
            DivergedError: A loss, a gradient or weights are not finite.
        """
        torch.set_num_threads(1)
        if isinstance(message, ChangeRequest):
            return self._change(message)
        if isinstance(message, TrainRequest):
            return self._trained(message, self._first_weights(message.weights))
        return self._data_holder.answer(message)

    def _change(self, request: ChangeRequest) -> Change | RoundedChange:
        """Returns the difference of the trained policy from a reference."""
        asked = request.training
        weights = self._first_weights(asked.weights)
        reference = self._first_weights(request.reference) if request.reference else weights
        config = require_streaming(self._assignment)
        key = (asked.round, asked.epoch, asked.epochs)
        if self._last is not None and self._last[0] == key and asked.weights is None:
            update = self._last[1]
        else:
            update = self._trained(asked, weights)
        # A request with another reference may follow; new training would give the same bits.
        again = config.asks_again and asked.weights is None
        self._last = (key, update) if again else None
        return change(self._assignment, request, reference, update, self._data_holder)

    def _first_weights(self, given: Tensors | None) -> Tensors:
        """Returns given weights, or else the initial ones."""
        assignment = self._assignment
        if given is None:
            return first_weights(assignment)
        try:
            require_weights(self._form, given)
        except CheckpointError as error:
            raise MessageError(str(error)) from None
        return {name: given[name] for name in self._form}

    def _trained(self, request: TrainRequest, weights: Tensors) -> LocalUpdate:
        assignment = self._assignment
        if not 1 <= request.epochs <= MAX_EPOCHS:
            raise MessageError(
                f"A request asks for {request.epochs} epochs; expected: 1 to {MAX_EPOCHS:,}."
            )
        blueprint, config, tuning = assignment.blueprint, assignment.training, assignment.backbone
        begin = begun(blueprint, tuning, weights, request.epoch, config.seed)
        state = train(
            blueprint, self._trajectories, config, begin, epochs=request.epochs, tuning=tuning
        )
        steps, trained = self._trajectories.steps, merged(state.policy_weights)
        return LocalUpdate(request.round, steps, state.loss, trained)

    @cached_property
    def _form(self) -> Tensors:
        return self._assignment.blueprint.create_empty().state_dict()

    @cached_property
    def _trajectories(self) -> Trajectories:
        assignment = self._assignment
        has = [name for name in assignment.blueprint.observation if name not in assignment.lacks]
        samples = self._samples(assignment.data, tuple(has))
        if max(assignment.episodes) >= len(samples.episodes):
            raise DatasetError(f"There are only {len(samples.episodes)} episodes here; {_REMEDY}")
        own = samples.subset(assignment.episodes)
        if content_digest(own) != assignment.content_digest:
            raise DatasetError(f"The episodes here differ from the assigned ones; {_REMEDY}")
        return Trajectories(own, assignment.blueprint, lacks=assignment.lacks)

    @cached_property
    def _data_holder(self) -> LocalDataHolder:
        assignment = self._assignment
        holder = local_data_holder(
            assignment.blueprint, self._trajectories, assignment.training.batch_size
        )
        # In a real fleet, the seed of the noise is a secret of the robot.
        return replace(holder, noise=assignment.moment_noise, noise_seed=assignment.training.seed)


def first_weights(assignment: Assignment) -> Tensors:
    """Returns the initial weights of a robot: its backbone's, or random ones.

    Raises:
        CheckpointError, DatasetError: See `BackboneConfig.load`.
    """
    if assignment.backbone is None:
        return assignment.blueprint.create(assignment.initialization).state_dict()
    return assignment.backbone.load(assignment.backbone_digest).weights


OpenSamples = Callable[[tuple[str, ...], tuple[str, ...]], Samples]
"""Opens datasets, given their folders and the names of observations."""


def open_samples(folders: Sequence[str], observations: Sequence[str]) -> Samples:
    """Returns the single steps of datasets; see `Samples`."""
    return Samples(list(folders), observations=list(observations))


def _bytes(weights: Tensors) -> int:
    return sum(tensor.nbytes for tensor in weights.values())


_OPEN_BYTES = 1e6  # records of episodes, the assignment and a network, as measured

_ROWS = 4096
"""Number of steps in a pass of a policy without memory, for moments."""

_REMEDY = "let all machines see the same datasets."


def local_data_holder(
    blueprint: Blueprint, trajectories: Trajectories, batch_size: int
) -> LocalDataHolder:
    """Returns a data holder that answers queries about policies on some trajectories.

    The loss is as in training: the mean over all steps, or over one batch that the seed draws.

    Args:
        blueprint: Blueprint of the policies.
        trajectories: The data.
        batch_size: Approximate number of steps in a batch.
    """

    def loss(policy: Any, seed: int | None) -> torch.Tensor:
        generator = None if seed is None else np.random.default_rng(seed)
        batches = trajectories.order(batch_size, generator)
        squares, steps = torch.zeros(()), 0
        for number, items in enumerate(batches if seed is None else batches[:1]):
            batch, generator = trajectories.batch(items), draws(seed or 0, 0, number)
            losses = imitation_losses(policy, batch, head, generator)
            squares = squares + losses.sum()
            steps += int(batch.mask.sum())
        return squares / max(steps, 1)

    head = blueprint.config.head

    def batches(count: int) -> Iterator[LabelledBatch]:
        # Single episodes need no padding.
        rows = _ROWS if isinstance(head, LinearHeadConfig) else _ROWS // count
        order = trajectories.order(1 if trajectories.with_memory else rows, None)
        for number, items in enumerate(order):
            yield labelled(trajectories.batch(items), head, draws(0, 0, number), count)

    like, network = partial(network_like, blueprint), blueprint.create().eval()
    episodes = None
    if isinstance(network, PolicyNetwork) and blueprint.reading is None:
        episodes = partial(_states, blueprint, trajectories)
    labels, unlabelled = partial(batches, DRAWS), partial(batches, FEW_DRAWS)
    return LocalDataHolder(network, loss, labels, unlabelled, resized=like, episodes=episodes)


@torch.no_grad()
def _states(
    blueprint: Blueprint, trajectories: Trajectories, model: Tensors | None
) -> list[torch.Tensor]:
    """Returns the states of each episode, as inputs of a policy's body, (steps, n).

    Args:
        blueprint: Blueprint of the policies.
        trajectories: The episodes.
        model: Weights of the policy that encodes features; None without encoders.

    Raises:
        MessageError: The model is missing, or is given without encoders.
    """
    if bool(blueprint.config.encoders) != (model is not None):
        raise MessageError(
            "A query for Gaussians needs a model if policies have encoders, and must not have one "
            "otherwise."
        )
    network: Any = blueprint.create().eval()
    read = network.scaled_state
    if model is not None:
        network.load_state_dict(model)
        read = network.features
    return [
        read({name: each[None] for name, each in observed.items()})[0]
        for observed in trajectories.episodes()
    ]
