"""A robot's work in a streaming round after training: alignment, and the upload of its change."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fleet_merging.errors import MessageError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.matching.weights import match_weights
from fleet_merging.methods.fleet_merge import TRUST, align_with_mean
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.symmetry.table import State, Symmetry
from fleet_tools.baselines.federated.messages import (
    Assignment,
    Change,
    ChangeRequest,
    LocalUpdate,
    RoundedChange,
)
from fleet_tools.baselines.federated.round_config import StreamingConfig
from fleet_tools.baselines.federated.vectors import difference, pack, quantize, sizes, split
from fleet_tools.baselines.training.state import Tensors

_ROUNDING = 1
"""Purpose of a seed, so that rounding and alignment draw different numbers."""


def change(
    assignment: Assignment,
    request: ChangeRequest,
    reference: Tensors,
    update: LocalUpdate,
    data_holder: DataHolder,
) -> Change | RoundedChange:
    """Returns a robot's reply to a request.

    Args:
        assignment: The robot's assignment.
        request: The request.
        reference: The reference, from the request or where training began.
        update: Result of the training.
        data_holder: The robot's own data.

    Raises:
        MessageError: The fleet is not a streaming one.
    """
    config, seed = require_streaming(assignment), assignment.training.seed
    aligned = align(
        assignment.method,
        assignment.method_options(),
        assignment.blueprint.symmetry(),
        {name: update.weights[name] for name in reference},
        reference,
        data_holder,
        seed + request.session,
    )
    vector = difference(aligned, reference)
    if config.bits is None:
        return Change(update.round, update.steps, update.loss, vector)
    generator = np.random.default_rng((seed, request.session, _ROUNDING))
    parts = split(vector, sizes(reference))
    largest = [float(np.abs(part).max(initial=0.0)) for part in parts]
    integers = [
        quantize(part, top, config.bits, generator)
        for part, top in zip(parts, largest, strict=True)
    ]
    packed = np.frombuffer(pack(np.concatenate(integers), config.bits), np.uint8).copy()
    tops = np.array(largest, np.float32)
    return RoundedChange(update.round, update.steps, update.loss, packed, tops)


def require_streaming(assignment: Assignment) -> StreamingConfig:
    """Returns the streaming configuration of a robot's fleet.

    Raises:
        MessageError: It has none.
    """
    if assignment.streaming is None:
        raise MessageError(
            "The robot's fleet does not stream. Set `streaming` in its configuration."
        )
    return assignment.streaming


def align(
    method: str,
    options: Mapping[str, Any],
    symmetry: Symmetry,
    own: State,
    reference: State,
    data_holder: DataHolder,
    seed: int,
) -> dict[str, torch.Tensor]:
    """Returns a robot's policy, permuted.

    Args:
        method: One of `round_config.STREAMED_METHODS`. "git_rebasin" matches the weights with the
            reference. "fleet_merge" begins there, and descends for one epoch on the robot's own
            data. The others do not align.
        options: Keyword arguments of fleet_merge, see `round_config.STREAMED_OPTIONS`.
        symmetry: Table of both policies.
        own: The robot's policy.
        reference: The reference.
        data_holder: The robot's own data.
        seed: Draws the order of matching and the points of the descent.
    """
    if method not in ("git_rebasin", "fleet_merge"):
        return dict(own)
    generator = np.random.default_rng(seed)
    permutation = match_weights(symmetry, reference, own, generator)
    if method == "fleet_merge":
        permutation = align_with_mean(
            symmetry,
            own,
            permutation,
            reference,
            data_holder,
            generator,
            options.get("descent") or Descent(),
            options.get("trust", TRUST),
        )
    return symmetry.apply(permutation, own)
