"""What a robot does in a streaming round after training: it aligns, and sends the difference."""

import numpy as np

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.messages import LocalUpdate
from fleet_tools.baselines.federated.streaming.alignment import align
from fleet_tools.baselines.federated.streaming.config import StreamingConfig
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    encode_rounded,
    encode_vector,
)
from fleet_tools.baselines.federated.streaming.quantization import quantize
from fleet_tools.baselines.federated.streaming.vectors import difference, sizes, split
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.data_holder import DataHolder
from fleet_tools.baselines.training.state import Tensors

_ROUNDING = 1
"""Purpose of a seed, so that rounding and alignment are drawn apart."""


def change(
    assignment: Assignment,
    request: ChangeRequest,
    reference: Tensors,
    update: LocalUpdate,
    data_holder: DataHolder,
) -> bytes:
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
        return encode_vector(update, vector)
    generator = np.random.default_rng((seed, request.session, _ROUNDING))
    parts = split(vector, sizes(reference))
    largest = [float(np.abs(part).max(initial=0.0)) for part in parts]
    integers = [
        quantize(part, top, config.bits, generator)
        for part, top in zip(parts, largest, strict=True)
    ]
    return encode_rounded(
        update, np.concatenate(integers), np.array(largest, np.float32), config.bits
    )


def require_streaming(assignment: Assignment) -> StreamingConfig:
    """Returns how the fleet of a robot streams.

    Raises:
        MessageError: It does not.
    """
    if assignment.streaming is None:
        raise MessageError("The robot's fleet does not stream; its configuration says how to.")
    return assignment.streaming
