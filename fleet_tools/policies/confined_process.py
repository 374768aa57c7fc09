"""The process of a confined policy; `fleet_tools.policies.confined` starts it."""

import json
import os
import pickle
import sys
import threading
import time
from io import TextIOWrapper
from multiprocessing.connection import Connection
from typing import Any, cast

from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.policy import Policy, policy_info
from fleet_tools.policies.sources import find_policy, policy_errors

_WATCH_S = 1.0


def serve(connection: Connection) -> None:
    """Answers requests until the connection is closed."""
    import numpy as np

    from fleet_tools.policies.confined_replies import plain

    sys.path[:] = pickle.loads(connection.recv_bytes())
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


def _end_with(parent: int) -> None:
    """Ends this process once its parent has ended, even while the policy works."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


if __name__ == "__main__":
    cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # what is printed is seen
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    serve(Connection(int(sys.argv[1])))
