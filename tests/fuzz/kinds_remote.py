"""Requests to a served policy, as its server receives them."""

from pathlib import Path

import numpy as np
from support.damage import damaged
from support.served_policies import LAYOUT, Remembering, hello, observation

from fleet_tools.policies.array_codec import ProtocolError, encode
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.wire_messages import (
    Act,
    Acted,
    Failed,
    Ready,
    Reset,
    largest_request,
    read_message,
    require_arrays,
)
from fuzz.kernel import Subject, require
from fuzz.mutations import changed_data, pick


def requests(folder: Path) -> Subject:
    """Requests to a served policy: bytes, and what else msgpack can say."""
    plain = {"type": "act", "seq": 1, "time_s": 0.5, "observation": {"state": [0.0, 1.0]}}

    def make(generator: np.random.Generator) -> bytes:
        act = Act(seq=1, time_s=0.5, observation=observation(int(generator.integers(100))))
        match int(generator.integers(4)):
            case 0:
                return act.to_bytes()
            case 1:
                return _encoded(changed_data(plain, generator), act)
            case 2:
                return _encoded({**plain, "observation": changed_arrays(generator)}, act)
        return damaged(pick(generator, (act, Reset(session=1))).to_bytes(), generator)

    def read(content: bytes) -> Ready | Acted:
        conversation = Conversation(Served(hello(), Remembering))
        conversation.answer(Reset(session=0))
        reply = conversation.reply(content).content
        answer: Ready | Acted | Failed = read_message(reply, Ready, Acted, Failed)
        if isinstance(answer, Failed):
            require(len(answer.message) <= 500, "a long message")
            raise ProtocolError(answer.code)
        return answer

    def check(content: bytes, answer: Ready | Acted) -> None:
        require(len(content) <= largest_request(LAYOUT), "a larger request than any")
        request = read_message(content, Reset, Act)
        if isinstance(request, Act):
            require_arrays(LAYOUT, request.observation)
            require(isinstance(answer, Acted) and answer.seq == request.seq, "another answer")
            return
        require(isinstance(answer, Ready) and answer.session == request.session, "another answer")

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


def _encoded(message: object, otherwise: Act) -> bytes:
    """Returns a message as bytes; another one where it cannot be sent at all."""
    try:
        return encode(message if isinstance(message, dict) else {"": message})
    except (ProtocolError, UnicodeEncodeError, RecursionError):
        return otherwise.to_bytes()[:-1]
