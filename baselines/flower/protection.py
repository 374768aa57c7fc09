"""Protection of a robot's training on a node: Flower's SecAgg+ or clipping.

    sums    SecAgg+ (Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic
            Overhead", 2020): the server learns only the sum of the nodes' weights
    noise   clipped changes, with the server's noise on their mean (McMahan et al., "Learning
            Differentially Private Recurrent Language Models", 2018). The server learns each change;
            the policies reveal little about any one robot.

Both are Flower's mods: `secaggplus_mod` and `fixedclipping_mod`. A node with a protection in its
configuration refuses all messages to its robot without it.
"""

from typing import Any, Final

import numpy as np
import torch

from fleet_merging.errors import MessageError
from fleet_tools.baselines.federated.messages import (
    Assignment,
    ChangeRequest,
    TrainRequest,
    checked_change,
)
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.federated.vectors import displaced, sizes
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.flower.node import Node
from fleet_tools.config.values import CountOrZero, Value, parse
from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.strict_json import loads

TASK: Final = "task"
"""Key of a `Task` in the configuration that goes with a message."""

CLIP: Final = "clipping_norm"
"""Flower's key of the norm to which a node clips its change."""

_SECURE: Final = "secaggplus_configs"
"""Flower's name of the record of SecAgg+."""


class Task(Value):
    """A robot's training in a protected round.

    Attributes:
        assignment: Its assignment.
        round: Number of the round, from 1.
        epoch: Number of epochs before.
        epochs: Number of epochs of this round.
    """

    assignment: Assignment
    round: CountOrZero
    epoch: CountOrZero
    epochs: CountOrZero


def read_task(text: Any) -> Task:
    """Returns the task in the configuration of a message.

    Raises:
        MessageError: There is none.
    """
    if not isinstance(text, str):
        raise MessageError(
            f"A protected message must hold a task as text; it holds a {type(text).__name__}."
        )
    try:
        return parse(Task, loads(text), "A message over Flower")
    except (ValueError, FleetToolsError) as error:
        raise MessageError(f"A protected message holds no task: {error}") from None


def protected(message: Any, context: Any, call_next: Any) -> Any:
    """A mod of Flower that applies a message's protection.

    Raises:
        ConfigError: The node requires another one, or a smaller norm.
    """
    node, records = Node.of(context.node_config), message.content.config_records
    if _SECURE in records:
        node.require_protection("sums")
        mods = flower("client.mod")
        return mods.secaggplus_mod(message, context, call_next)
    norms = [record[CLIP] for record in records.values() if CLIP in record]
    if norms:
        node.require_protection("noise", float(norms[0]))
        return flower("clientapp.mod").fixedclipping_mod(message, context, call_next)
    node.require_protection("none")
    return call_next(message, context)


def is_protected(message: Any) -> bool:
    """Whether a message asks for weights under a protection."""
    records = message.content.config_records
    return any(TASK in record for record in records.values())


def train_protected(message: Any, context: Any) -> Any:
    """Returns the reply of a node: the weights of its robot, aligned and trained, as one vector.

    Raises:
        MessageError: The message is no such request.
        FleetToolsError: See `FleetClient.answer`.
    """
    node, compat = Node.of(context.node_config), flower("compat.common.recorddict_compat")
    common = flower("common")
    given = compat.recorddict_to_fitins(message.content, keep_input=True)
    arrays = common.parameters_to_ndarrays(given.parameters)
    task = read_task(given.config.get(TASK))
    reference = arrays[0] if len(arrays) == 1 else np.zeros(0)
    update = common.FitRes(
        common.Status(common.Code.OK, ""),
        common.ndarrays_to_parameters(
            [weights_after(node.localized(task.assignment), task, reference)]
        ),
        num_examples=1,  # equal weights, since numbers of steps would not be hidden
        metrics={},
    )
    content = compat.fitres_to_recorddict(update, keep_input=False)
    return flower("app").Message(content, reply_to=message)


def weights_after(assignment: Assignment, task: Task, reference: np.ndarray) -> np.ndarray:
    """Returns a robot's weights after training and alignment with its initial ones.

    Args:
        assignment: Its assignment, with its own data.
        task: Its training.
        reference: Initial weights of the round, (n,), float32; see `federated.vectors`.

    Raises:
            MessageError: The number of weights differs, or its fleet does not stream.
    """
    zero = {
        name: torch.zeros_like(each)
        for name, each in assignment.blueprint.create().state_dict().items()
    }
    size = sum(each.numel() for each in zero.values())
    if reference.shape != (size,):
        raise MessageError(f"{reference.shape} weights were sent; the policy has {size}.")
    weights = displaced(zero, reference.astype(np.float64))
    training = TrainRequest(task.round, task.epoch, task.epochs, weights)
    answer = FleetClient(assignment).answer(ChangeRequest(training, None, task.round))
    change = checked_change(answer, task.round, sizes(zero), None)
    return (reference + change.vector).astype(np.float32)
