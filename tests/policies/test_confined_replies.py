"""What a confined policy's process answers is read as what it says, or refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.errors import PolicyError
from fleet_tools.policies.confined_replies import (
    GarbledReplyError,
    plain,
    read_action,
    read_reply,
)

DTYPES = st.sampled_from(["f2", "f4", "f8", ">f4", "i4", "u8", "?"])


def reply(answer: Any, error: str | None = None) -> bytes:
    return json.dumps({"error": error, "answer": answer}).encode()


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_side=5)))
def test_an_action_is_read_bit_for_bit(action: np.ndarray) -> None:
    found = read_action(read_reply(reply(plain(action))))
    assert (found.dtype, found.shape) == (action.dtype, action.shape)
    assert found.tobytes() == action.tobytes()


def test_an_error_is_the_policys_own() -> None:
    with pytest.raises(PolicyError, match=r"^it failed$"):
        read_reply(reply(None, "it failed"))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff", b"[]", b"{}", b"null", b'{"error": null}', b"[" * 10**5,
        b'{"error": null, "answer": NaN}', b'{"error": null, "answer": 1e999}',
        b'{"error": "\\ud800", "answer": null}', b'{"error": null, "error": 1, "answer": 0}',
        b'{"error": null, "answer": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_reply_is_refused(content: bytes) -> None:
    with pytest.raises(GarbledReplyError, match="answered something else"):
        read_reply(content)


ACTION = plain(np.arange(6, dtype=np.float32))


@pytest.mark.parametrize(
    "change",
    [
        {"data": ACTION["data"][:8] + "!" + ACTION["data"][8:]},  # was left out, silently
        {"data": "é" + ACTION["data"]},
        {"data": ACTION["data"][:-4]},
        {"dtype": "O"},
        {"dtype": "1" * 5000},
        {"dtype": "f4,f4"},
        {"shape": [10**40]},
        {"shape": [7]},
        {"shape": "6"},
    ],
)
def test_what_is_no_action_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="answered with no action"):
        read_action(read_reply(reply({**ACTION, **change})))
    with pytest.raises(PolicyError, match="answered with no action"):
        read_action(None)
