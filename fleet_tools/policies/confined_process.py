"""The process of a confined policy; `fleet_tools.policies.confined` starts it."""

import json
import pickle
from multiprocessing.connection import Connection
from typing import Any

from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.policy import Policy, policy_info
from fleet_tools.policies.sources import find_policy, policy_errors


def main(connection: Connection) -> None:
    """Answers requests until the connection is closed."""
    import numpy as np

    from fleet_tools.policies.confined_replies import plain

    policy: Policy | None = None

    def answer(request: str, arguments: list[Any]) -> Any:
        nonlocal policy
        if request == "find":
            found = find_policy(*arguments)
            return found.kind, found.content_digest, found.env_kwargs
        if request == "make":
            source, interface, seed = arguments
            with policy_errors("making it"):
                policy = source.make(interface, seed)
            return None
        assert policy is not None  # it is made first
        with policy_errors(request):
            match request:
                case "reset":
                    return policy.reset()
                case "act":
                    return plain(np.asarray(policy.act(*arguments)))
            return json.loads(json.dumps(dict(policy_info(policy)), allow_nan=False))

    while True:
        try:
            request, *arguments = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            reply: dict[str, Any] = {"error": None, "answer": answer(request, arguments)}
        except FleetToolsError as error:
            reply = {"error": str(error), "answer": None}
        connection.send_bytes(json.dumps(reply).encode())
