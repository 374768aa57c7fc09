"""A robot of a fleet: it has data, trains on them, and answers questions about models."""

from functools import cached_property

import numpy as np
import torch

from fleet_tools.baselines.federated.messages import Reply, decode_request, encode_reply, is_request
from fleet_tools.baselines.federated.plan import Assignment
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.data_holder import LocalRobot
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.errors import CheckpointError
from fleet_tools.baselines.policies.weights import require_weights
from fleet_tools.baselines.training.experiment import content_digest
from fleet_tools.baselines.training.loop import squared_errors, train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError


class FleetRobot:
    """A `merging.robots.Robot` that can also be asked to train.

    It computes in one thread, so that its bits do not depend on where it runs.

    Args:
        assignment: What it is told. Its data are opened with the first message.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._told = assignment

    def answer(self, message: bytes) -> bytes:
        """Takes a request or a question, and returns its reply or answer.

        Raises:
            MessageError: It is neither, or about another network.
            DatasetError: The data are not there, or not those that were meant.
            DivergedError: Training came to numbers that are not finite.
        """
        torch.set_num_threads(1)
        return self._train(message) if is_request(message) else self._questioned.answer(message)

    def _train(self, message: bytes) -> bytes:
        request, told = decode_request(message), self._told
        weights = told.blueprint.create(told.initialization).state_dict()
        if request.weights is not None:
            try:
                require_weights(weights, request.weights)
            except CheckpointError as error:
                raise MessageError(str(error)) from None
            weights = request.weights
        begin = TrainingState(weights, epoch=request.epoch)
        state = train(
            told.blueprint, self._trajectories, told.training, begin, epochs=request.epochs
        )
        steps = self._trajectories.steps
        return encode_reply(Reply(request.round, steps, state.loss, state.weights))

    @cached_property
    def _trajectories(self) -> Trajectories:
        told = self._told
        samples = Samples(told.data, observations=list(told.blueprint.observation))
        if max(told.episodes) >= len(samples.episodes):
            raise DatasetError(f"There are only {len(samples.episodes)} episodes here; {_REMEDY}")
        own = samples.subset(told.episodes)
        if content_digest(own) != told.content_digest:
            raise DatasetError(f"The episodes here are others than were meant; {_REMEDY}")
        return Trajectories(own, told.blueprint)

    @cached_property
    def _questioned(self) -> LocalRobot:
        told = self._told
        return questioned(told.blueprint, self._trajectories, told.training.batch_size)


_REMEDY = "let all machines see the same data."


def questioned(blueprint: Blueprint, trajectories: Trajectories, batch_size: int) -> LocalRobot:
    """Returns who answers `merging.wire`'s questions about policies on some trajectories.

    Its loss is training's: the mean over all steps, or over those of one batch, drawn by the seed.

    Args:
        blueprint: Of the policies.
        trajectories: Its data.
        batch_size: Steps in a batch, about.
    """

    def loss(policy, seed: int | None) -> torch.Tensor:
        generator = None if seed is None else np.random.default_rng(seed)
        batches = trajectories.order(batch_size, generator)
        squares, steps = 0.0, 0
        for items in batches if seed is None else batches[:1]:
            batch = trajectories.batch(items)
            squares = squares + squared_errors(policy, batch).sum()
            steps += int(batch.mask.sum())
        return squares / max(steps, 1)

    return LocalRobot(blueprint.create().eval(), loss)
