"""What a robot does in a streaming round after training: it aligns, and sends the difference."""

import hashlib

import numpy as np

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.messages import LocalUpdate
from fleet_tools.baselines.federated.privacy.clipping import clip
from fleet_tools.baselines.federated.privacy.masks import mask
from fleet_tools.baselines.federated.privacy.quantization import dequantize, quantize
from fleet_tools.baselines.federated.streaming.alignment import align
from fleet_tools.baselines.federated.streaming.config import StreamingConfig
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    encode_masked,
    encode_rounded,
    encode_vector,
)
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
    secret: bytes,
) -> bytes:
    """Returns a robot's reply to a request.

    Args:
        assignment: The robot's assignment.
        request: The request.
        reference: The reference, from the request or where training began.
        update: Result of the training.
        data_holder: The robot's own data.
        secret: Its secret key, from which masks are drawn.

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
    if config.clip is not None:
        vector = clip({"": vector}, config.clip)[0][""]
    if config.bits is None:
        return encode_vector(update, vector)
    generator = np.random.default_rng((seed, request.session, _ROUNDING))
    if request.modulus_bits:
        masked = mask(
            _rounded([vector], [config.largest], config, generator),
            request.modulus_bits,
            robot=assignment.robot,
            secret=secret,
            public_keys=request.public_keys,
            round_number=request.nonce,
        )
        return encode_masked(update, masked, request.modulus_bits)
    parts = split(vector, sizes(reference))
    largest = [float(np.abs(part).max(initial=0.0)) for part in parts]
    integers = _rounded(parts, largest, config, generator)
    return encode_rounded(update, integers, np.array(largest, np.float32), config.bits)


def _rounded(
    parts: list[np.ndarray],
    largest: list[float],
    config: StreamingConfig,
    generator: np.random.Generator,
) -> np.ndarray:
    """Returns parts of a vector as integers, one after the other.

    Rounding may lengthen a clipped vector. It is then shortened and rounded again, until its norm
    is at most that of the clip, on which epsilon rests; this is no longer without bias.
    """
    bits = config.bits
    assert bits is not None
    while True:
        integers = [
            quantize(part, top, bits, generator) for part, top in zip(parts, largest, strict=True)
        ]
        if config.clip is None:
            break
        rounded = [dequantize(i, top, bits) for i, top in zip(integers, largest, strict=True)]
        if np.linalg.norm(np.concatenate(rounded).astype(np.float64)) <= config.clip:
            break
        parts = [0.9 * part for part in parts]
    return np.concatenate(integers)


def require_streaming(assignment: Assignment) -> StreamingConfig:
    """Returns how the fleet of a robot streams.

    Raises:
        MessageError: It does not.
    """
    if assignment.streaming is None:
        raise MessageError("The robot's fleet does not stream; its configuration says how to.")
    return assignment.streaming


def secret_of(assignment: Assignment) -> bytes:
    """Returns the secret key of a robot that has none of its own.

    It follows from the robot's seed, so that runs are repeated bit for bit; who knows the seed can
    take off the masks.
    """
    text = f"masks {assignment.training.seed} {assignment.robot}"
    return hashlib.blake2b(text.encode(), digest_size=32).digest()
