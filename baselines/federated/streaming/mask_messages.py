"""Messages about masks: public keys, and what robots reveal when a round is closed."""

from collections.abc import Collection, Mapping

import torch

from fleet_tools.baselines.federated.messages import int64, save, take_integer, tensor_names
from fleet_tools.baselines.federated.privacy.masks import Reveal, public_key, reveal
from fleet_tools.baselines.federated.privacy.seeds import KEY_BYTES
from fleet_tools.baselines.federated.streaming.messages import (
    encoded_keys,
    require_empty,
    take_array,
    take_keys,
    uint8,
)
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import unpacked

_KEY, _REVEAL = "public_key", "reveal"


def encode_key_request() -> bytes:
    """Returns the request for a robot's public key."""
    return save({_KEY: int64(0)})


def encode_reveal_request(
    nonce: int, public_keys: Mapping[int, bytes], lost: Collection[int]
) -> bytes:
    """Returns the request to reveal what removes a robot's masks from the sum.

    Args:
        nonce: That of the change request.
        public_keys: Public keys of all its neighbours, as in the change request.
        lost: Those of them whose answers are not in the sum.
    """
    numbers = torch.tensor(sorted(lost), dtype=torch.int64)
    return save({_REVEAL: int64(nonce), "lost": numbers, **encoded_keys(public_keys)})


def is_mask_message(message: bytes) -> bool:
    """Whether a message is one of these.

    Raises:
        MessageError: The bytes are not a message.
    """
    return not {_KEY, _REVEAL}.isdisjoint(tensor_names(message, "message"))


def answer_mask_message(message: bytes, robot: int, secret: bytes) -> bytes:
    """Returns a robot's answer.

    Args:
        message: The message.
        robot: Number of the robot.
        secret: Its secret key.

    Raises:
        MessageError: The message asks for something else, or for what would unmask the robot.
    """
    tensors = unpacked(message, "message")
    if _KEY in tensors:
        take_integer(tensors, _KEY)
        require_empty(tensors)
        return save({_KEY: uint8(public_key(secret))})
    nonce = take_integer(tensors, _REVEAL)
    lost = take_array(tensors, "lost", torch.int64, None).tolist()
    keys = take_keys(tensors)
    require_empty(tensors)
    revealed = reveal(lost, robot=robot, secret=secret, public_keys=keys, round_number=nonce)
    return save({"own": uint8(revealed.own), **encoded_keys(revealed.pairs)})


def decode_key(answer: bytes) -> bytes:
    """Returns a robot's public key.

    Raises:
        MessageError: The bytes hold no key, or something else.
    """
    tensors = unpacked(answer, "answer")
    key = take_array(tensors, _KEY, torch.uint8, (KEY_BYTES,)).tobytes()
    require_empty(tensors)
    return key


def decode_reveal(answer: bytes, robot: int, lost: Collection[int]) -> Reveal:
    """Returns what a robot revealed.

    Args:
        answer: Its answer.
        robot: Its number.
        lost: Its lost neighbours.

    Raises:
        MessageError: The bytes hold anything else than the seeds that were asked for.
    """
    tensors = unpacked(answer, "answer")
    own = take_array(tensors, "own", torch.uint8, (KEY_BYTES,)).tobytes()
    pairs = take_keys(tensors)
    require_empty(tensors)
    if set(pairs) != set(lost):
        raise MessageError(
            f"Robot {robot} reveals seeds with {sorted(pairs)}; expected: with {sorted(lost)}."
        )
    return Reveal(robot, own, pairs)
