"""What the process of a confined policy answers: JSON, which is read as data of a stranger."""

import base64
from typing import Any

import numpy as np

from fleet_tools.errors import PolicyError
from fleet_tools.storage.strict_json import loads

_LARGEST_ACTION = 4096  # bytes; whether an action is valid, the environment decides


class GarbledReplyError(PolicyError):
    """An answer that is none: the process does not speak the protocol."""


def read_reply(content: bytes) -> Any:
    """Returns the answer in a reply, plain data.

    Raises:
        GarbledReplyError: It is no reply.
        PolicyError: The reply is that the policy raised an error.
    """
    try:
        reply = loads(content.decode())
        error, answer = reply["error"], reply["answer"]
    except (ValueError, TypeError, KeyError, RecursionError) as garbled:
        raise GarbledReplyError("the policy's process answered something else") from garbled
    if error is not None:
        raise PolicyError(str(error))
    return answer


def plain(action: np.ndarray) -> dict[str, Any]:
    """Returns an array as plain data, see `read_action`.

    Raises:
        PolicyError: It holds no numbers, or too many.
    """
    if action.dtype.kind not in "biuf" or action.nbytes > _LARGEST_ACTION:
        what = f"an array of {action.dtype} with the shape {action.shape}"
        raise PolicyError(f"act returned {what}; an action is six numbers")
    data = base64.b64encode(np.ascontiguousarray(action).tobytes()).decode()
    return {"dtype": action.dtype.str, "shape": action.shape, "data": data}


def read_action(answer: Any) -> np.ndarray:
    """Returns the array of `plain`.

    Raises:
        PolicyError: It is something else.
    """
    try:
        dtype = np.dtype(str(answer["dtype"]))
        if dtype.kind not in "biuf":
            raise ValueError(f"{dtype} is no type of numbers")
        flat = np.frombuffer(base64.b64decode(answer["data"], validate=True), dtype)
        return flat.reshape(answer["shape"]).copy()
    except (KeyError, TypeError, ValueError, SyntaxError) as error:
        raise PolicyError(f"the policy's process answered with no action: {error}") from None
