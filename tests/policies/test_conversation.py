"""Every request leads to one answer, and what is refused leaves the policy's state as it is."""

import re
from typing import Any

import numpy as np
import pytest
from support.served_policies import Remembering, Scripted, constant, hello, observation

from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.wire_messages import (
    CLOSING,
    Act,
    Acted,
    Failed,
    Inform,
    Ready,
    Reset,
    read_message,
)


def conversation(policy: Any = None) -> Conversation:
    return Conversation(Served(hello(), lambda: policy or Remembering()))


def act(seq: int, **changes: Any) -> bytes:
    given = {"seq": seq, "time_s": 0.1 * seq, "observation": observation(seq)}
    return Act(**{**given, **changes}).to_bytes()


def told(talk: Conversation, content: bytes | str) -> Ready | Acted | Failed:
    reply = talk.reply(content)
    assert isinstance(reply.content, bytes)
    answer: Ready | Acted | Failed = read_message(reply.content, Ready, Acted, Failed)
    assert reply.closes == (isinstance(answer, Failed) and answer.code in CLOSING)
    return answer


def begun(policy: Any = None) -> Conversation:
    talk = conversation(policy)
    assert talk.answer(Reset(session=3)) == Ready(session=3)
    return talk


def answered(talk: Conversation, seq: int) -> bytes:
    answer = told(talk, act(seq))
    assert isinstance(answer, Acted) and answer.seq == seq
    return answer.action.tobytes()


def refused(talk: Conversation, content: bytes | str) -> Failed:
    answer = told(talk, content)
    assert isinstance(answer, Failed) and len(answer.message) <= 500
    return answer


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
    assert answered(talk, 0) == answered(other, 0)
    failure = refused(talk, act(1, observation=arrays))
    assert failure.code == "observation"
    assert re.search(message, failure.message)
    assert answered(talk, 1) == answered(other, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        "text",
        b"\x81\xa4type\xa3act",
        Failed(code="full").to_bytes(),
        hello().to_bytes(),
        Inform().to_bytes(),  # which is for confined policies
        Acted(seq=0, action=np.zeros(6)).to_bytes(),
        Act.model_construct(seq=-1, time_s=0.0, observation={}).to_bytes(),
        Act.model_construct(seq=True, time_s=0.0, observation={}).to_bytes(),
        Act.model_construct(seq="1", time_s=0.0, observation={}).to_bytes(),
        Act.model_construct(seq=1, time_s=float("nan"), observation={}).to_bytes(),
        Act.model_construct(seq=1, time_s=0.0, observation={"state": [1.0, 2.0]}).to_bytes(),
        Act.model_construct(seq=1, time_s=0.0, observation=[]).to_bytes(),
        Reset.model_construct(session=2**63).to_bytes(),
    ],
    ids=range(15),
)
def test_what_is_no_request_is_malformed(content):
    assert refused(begun(), content).code == "malformed"


def test_requests_come_in_order():
    talk = conversation()
    assert refused(talk, act(0)).code == "order"  # before a reset
    talk.answer(Reset(session=0))
    answered(talk, 5)
    assert [refused(talk, act(seq)).code for seq in (5, 4, 0)] == ["order"] * 3
    talk.answer(Reset(session=1))
    assert refused(talk, act(5)).code == "order"  # numbers belong to the connection
    answered(talk, 6)


def test_a_reset_forgets():
    talk = begun()
    first = answered(talk, 0)
    answered(talk, 1)
    talk.answer(Reset(session=4))
    again = told(talk, act(7, observation=observation(0)))
    assert isinstance(again, Acted) and again.action.tobytes() == first


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
    failure = refused(talk, act(0))
    assert failure.code == "policy" and "secret" not in failure.message
    assert "Traceback" not in failure.message and "Traceback" in caplog.text
    assert refused(talk, act(1)).code == "order"
    talk.answer(Reset(session=1))
    answered(talk, 2)
