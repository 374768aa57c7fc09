"""A server in a process of its own, which `hostile_clients.py` attacks.

It answers its address, and then each line of its input by what it dropped so far.
"""

import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from children import answering

from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.openpi import OpenpiConversation
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.server_access import Access
from fleet_tools.policies.wire_messages import Hello
from fleet_tools.studio.photographs.render_requests import make_server

HELLO = Hello(
    policy="zeros",
    blueprint_digest="",
    content_digest="",
    observation={
        "state": ArraySpec(kind="state", shape=(7,), dtype="float32", unit="rad", frame=None)
    },
    action=ArraySpec(kind="action", shape=(6,), dtype="float32", unit="m", frame="E"),
    control_period_s=1.0 / 6.0,
)
PLACES = 4
"""Number of connections of a policy's server."""

_FEW_DESCRIPTORS, _FEW_THREADS = 15, 40

TOKEN = "0123456789abcdef0123456789abcdef"
DIALECTS = {"policy": Conversation, "openpi": OpenpiConversation}


class _Zeros:
    def reset(self) -> None:
        pass

    def act(self, observation: object) -> np.ndarray:
        return np.zeros(6, np.float32)


def _made(kind: str, folder: str) -> tuple[str, Callable[[], None], Callable[[], dict[str, int]]]:
    """Returns the address of a server, and functions that serve and tell what was dropped."""
    if kind == "Blender":
        loop = make_server("127.0.0.1", 0, lambda *_: b"image", {}, 10**6)
        host, port = loop.address
        return f"http://{host}:{port}", loop.serve_forever, lambda: dict(loop.dropped)
    secured = {}
    if folder:
        files = (Path(folder) / name for name in ("certificate.pem", "key.pem"))
        secured = {"token": TOKEN, **dict(zip(("certificate", "key"), files, strict=True))}
    server = PolicyServer(Served(HELLO, _Zeros), Access(**secured), PLACES, DIALECTS[kind])
    return server.url, server.serve_forever, lambda: server.dropped


def _limit(what: str) -> None:
    """Leaves little room for "descriptors" or "threads"."""
    if what == "descriptors":
        most = len(os.listdir("/proc/self/fd")) + _FEW_DESCRIPTORS
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    elif what == "threads":  # by the addresses of their stacks
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _FEW_THREADS * 2**23
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(kind: str, folder: str, limit: str) -> None:
    """Serves until its input ends.

    Args:
        kind: "policy", "openpi" or "Blender".
        folder: Folder of `certificate.pem` and `key.pem`; empty speaks without TLS.
        limit: What there is little of, see `_limit`; empty for nothing.
    """
    with answering() as answer:
        url, serve, dropped = _made(kind, folder)
        _limit(limit)
        threading.Thread(target=serve, daemon=True).start()
        answer(url)
        for _ in sys.stdin:
            answer(dropped())


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
