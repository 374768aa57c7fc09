"""Requests to a served policy, as its server receives them."""

from pathlib import Path
from typing import Any

import numpy as np
from support.damage import damaged
from support.served_policies import LAYOUT, Remembering, hello, observation

from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.wire_messages import CONTROL, RESET, largest_request, require_arrays
from fuzz.kernel import Subject, require
from fuzz.mutations import changed_data, pick, scalar


def requests(folder: Path) -> Subject:
    """Requests to a served policy, of our clients and openpi's: bytes, and all of msgpack."""

    def make(generator: np.random.Generator) -> bytes:
        whole = observation(int(generator.integers(100)))
        control = pick(generator, ({}, {CONTROL: {"number": 1, "reset": True}}))
        match int(generator.integers(5)):
            case 0:
                return _encoded({**whole, **control, RESET: scalar(generator), "prompt": "go"})
            case 1:
                return _encoded({**whole, **changed_data({**control, "a": [1.0]}, generator)})
            case 2:
                return encode({**changed_arrays(generator), **control})
            case 3:
                return encode(control)
        return damaged(encode({**whole, **control}), generator)

    def read(content: bytes) -> dict[str, Any]:
        reply = Conversation(Served(hello(), Remembering)).reply(content)
        if isinstance(reply.content, str):
            require(len(reply.content) <= 500, "it tells much")
            require(not reply.content.startswith("policy"), "the policy was given this")
            raise ProtocolError(reply.content)
        return decode(reply.content)

    def check(content: bytes, answer: dict[str, Any]) -> None:
        require(len(content) <= largest_request(LAYOUT), "a larger request than any")
        request = decode(content)
        control = request.pop(CONTROL, {"number": None})
        require(answer.get("number") == control["number"], "the answer to another request")
        if "actions" not in answer:
            require(control.get("reset") and not request, "an answer without an action")
            return
        require(answer["actions"].shape == (1, 6), "no chunk of one action")
        require(np.isfinite(answer["actions"]).all(), "an action is not finite")
        if "reset" in control:
            require_arrays(LAYOUT, request)
        for name, spec in LAYOUT.items():
            given = np.asarray(request[name])
            require(given.shape == spec.shape, f"{name} has the shape {given.shape}")
            require(np.isfinite(given).all(), f"{name} is not finite")

    return Subject(make, read, check)


def changed_arrays(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns an observation of which an entry has another shape, dtype, name or number."""
    arrays = observation()
    name = pick(generator, list(arrays))
    array = arrays.pop(name).copy()
    match int(generator.integers(5)):
        case 0:
            array = array.reshape(array.shape[::-1])
        case 1:
            array = array.astype(pick(generator, ("float64", "int32", "bool", "uint8", "float32")))
        case 2:
            name = pick(generator, ("", "state ", "other", "x" * 300))
        case 3:
            array = array.astype("float32")
            array.flat[0] = pick(generator, (np.nan, np.inf, -np.inf, 1e38, -0.0))
        case _:
            array = array[: int(generator.integers(len(array)))]
    return {**arrays, name: array}


def _encoded(message: dict[str, Any]) -> bytes:
    """Returns a message as bytes; another one where it cannot be sent at all."""
    try:
        return encode(message)
    except (ProtocolError, UnicodeEncodeError, RecursionError):
        return encode({})
