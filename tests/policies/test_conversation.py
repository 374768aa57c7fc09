"""Every request leads to one answer, and what is refused leaves the policy's state as it is."""

import re
from typing import Any

import numpy as np
import pytest
from support.served_policies import LAYOUT, Remembering, Scripted, constant, hello, observation

from fleet_tools.policies.array_codec import decode, encode
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.wire_messages import (
    CLOSING,
    CONTROL,
    RESET,
    FailureCode,
    largest_request,
    read_failure,
)


def conversation(policy: Any = None) -> Conversation:
    return Conversation(Served(hello(), lambda: policy or Remembering()))


def request(number: Any, arrays: Any = None, **control: Any) -> bytes:
    return encode({**(arrays or {}), CONTROL: {"number": number, **control}})


def act(number: int, arrays: Any = None) -> bytes:
    return request(number, observation(number) if arrays is None else arrays)


def reset(talk: Conversation, number: int) -> None:
    reply = talk.reply(request(number, reset=True))
    assert isinstance(reply.content, bytes)
    assert decode(reply.content) == {"number": number} and not reply.closes


def begun(policy: Any = None) -> Conversation:
    talk = conversation(policy)
    reset(talk, 3)
    return talk


def answered(talk: Conversation, content: bytes) -> bytes:
    """Returns the action of a request."""
    reply = talk.reply(content)
    assert isinstance(reply.content, bytes), reply.content
    answer, given = decode(reply.content), decode(content)
    assert not reply.closes and answer["actions"].shape == (1, 6)
    assert answer.get("number") == given.get(CONTROL, {}).get("number")
    return answer["actions"][0].tobytes()


def refused(talk: Conversation, content: bytes | str) -> tuple[FailureCode, str]:
    reply = talk.reply(content)
    assert isinstance(reply.content, str) and len(reply.content) <= 500
    code, why = read_failure(reply.content)
    assert reply.closes == (code in CLOSING)
    return code, why


def changed(name: str, value: Any) -> dict[str, Any]:
    return {**observation(), name: value}


NAN = np.array([0.0, np.nan, 0.0], np.float32)
MISFITS = {
    "a missing entry": ({"state": observation()["state"]}, "'tool_cloud' is missing"),
    "another entry": (changed("secret", NAN), "'secret' is not asked for"),
    "another shape": (changed("state", np.zeros(4, np.float32)), r"float32 \(4,\), not"),
    "another dtype": (changed("state", np.zeros(3)), "float64"),
    "an axis more": (changed("state", np.zeros((1, 3), np.float32)), r"\(1, 3\)"),
    "NaN": (changed("state", NAN), "'state' is not finite"),
    "infinity": (changed("state", NAN + np.float32(np.inf)), "'state' is not finite"),
    "nothing": ({}, "is missing"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_refused_observation_leaves_the_state_as_it_is(name):
    arrays, message = MISFITS[name]
    talk, other = begun(), begun()
    assert answered(talk, act(4)) == answered(other, act(4))
    content = act(5, arrays) if arrays else request(5)
    code, why = refused(talk, content)
    assert code == "observation" and re.search(message, why)
    assert answered(talk, act(5)) == answered(other, act(5))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80\x80", "text", act(4)[:-7],
        *(request(number) for number in (-1, True, "1", 1.0, 2**63, None, np.ones(2))),
        request(4, reset=1), request(4, seed=1), request(4, inform="x"), request(4, other=1),
        encode({**observation(), CONTROL: 4}), encode({**observation(), CONTROL: {}}),
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_request_is_malformed(content):
    assert refused(begun(), content)[0] == "malformed"


def test_requests_come_in_order():
    talk = conversation()
    assert refused(talk, act(0))[0] == "order"  # before a reset
    reset(talk, 0)
    answered(talk, act(5))
    assert [refused(talk, act(number))[0] for number in (5, 4, 0)] == ["order"] * 3
    reset(talk, 6)
    assert refused(talk, act(5))[0] == "order"  # numbers belong to the connection
    answered(talk, act(7))
    assert refused(talk, request(8, inform=True))[0] == "observation"  # for confined policies


def test_a_reset_forgets_alone_or_with_the_first_observation():
    talk = begun()
    first = answered(talk, act(4))
    answered(talk, act(5))
    reset(talk, 6)
    assert answered(talk, act(7, observation(4))) == first
    assert answered(talk, request(8, observation(4), reset=True)) == first


class Seeds:
    """Acts by the seed of the episode."""

    def reset(self, seed: int = 0) -> None:
        self.seed = seed

    def act(self, observation: Any) -> np.ndarray:
        return np.full(6, self.seed / 2**63, np.float32)


def test_an_episode_of_a_client_of_openpi_is_the_one_of_ours():
    """It begins with the first request, whose observation has the seed."""
    for policy in (Remembering, Seeds):
        talk, ours = conversation(policy()), conversation(policy())
        for number, seed in enumerate((0, 1, 2, 0, 1)):
            seen = observation(seed)
            wider = {**seen, "state": seen["state"].astype(np.float64), "prompt": "hit the pin"}
            if seed == 0 and number:
                wider[RESET] = True
            control = {"reset": seed == 0}
            expected = answered(ours, request(number, seen, **control))
            assert answered(talk, encode(wider)) == expected


REFUSED = {
    "a missing entry": ({"state": None}, "'tool_cloud' is missing"),
    "another shape": ({**observation(), "state": np.zeros(4)}, "'state' is float32"),
    "numbers for pixels": ({**observation(), "wrist_rgb": np.zeros((2, 3, 3))}, "'wrist_rgb' is"),
    "a number that overflows": ({**observation(), "state": np.full(3, 1e300)}, "not finite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_failure_ends_the_connection_of_a_client_of_openpi(name):
    reply = conversation().reply(encode(REFUSED[name][0]))
    assert isinstance(reply.content, str) and REFUSED[name][1] in reply.content and reply.closes


def test_the_largest_request_is_large_enough_and_not_much_larger():
    wide = {name: np.zeros(array.shape) for name, array in observation().items()}
    size = len(request(2**63 - 1, wide, reset=True))
    assert size <= largest_request(LAYOUT) <= size + 2**17


SECRET = RuntimeError("/home/somebody/secret.py is absent")


@pytest.mark.parametrize(
    "value", [SECRET, np.zeros(5, np.float32), np.zeros(6), NAN.repeat(2), None], ids=repr
)
def test_an_error_of_the_policy_ends_its_episode_and_tells_nothing(value, caplog):
    def fail_once(step: int) -> Any:
        if step == 0 and isinstance(value, Exception):
            raise value
        return value if step == 0 else constant(step)

    talk = begun(Scripted(fail_once))
    code, why = refused(talk, act(4))
    assert code == "policy" and "secret" not in why
    assert "Traceback" not in why and "Traceback" in caplog.text
    assert refused(talk, act(5))[0] == "order"
    reset(talk, 6)
    answered(talk, act(7))
