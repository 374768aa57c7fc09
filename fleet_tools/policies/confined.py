"""Policies in processes of their own, which see observations and nothing else.

The process is new and not forked, and has no environment: it is sent the interface of one, then
observations. Its answers are treated as a policy server's, so that nothing it sends is run here.
It has its user's rights. Where the system lets users make namespaces, it sees no other processes.
"""

import contextlib
import functools
import os
import pickle
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.config.values import Value
from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.observation_modes import EnvKwargs, own_code
from fleet_tools.envs.recorded_env import EnvInterface
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.parallel.backend import SAME_HASHES, begin_alike
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.policy import NeverCopied, Policy, policy_errors
from fleet_tools.policies.policy_client import PolicyChannel, PolicyClient
from fleet_tools.policies.sources import Kind, PolicySource, Track, find_policy, is_factory
from fleet_tools.policies.wire_messages import (
    MAX_ANSWER,
    FailureCode,
    Hello,
    failure,
    read_failure,
    read_value,
)
from fleet_tools.utils.imports import trust
from fleet_tools.utils.machine import limit_memory

VARIABLES = "FLEET_TOOLS_POLICY_VARIABLES"
"""Environment variable with names of further ones that policies are given, separated by commas."""

_GIVEN = re.compile(
    "PATH|PYTHONPATH|PYTHONDONTWRITEBYTECODE|VIRTUAL_ENV|LD_LIBRARY_PATH|LANG|LC_[A-Z]+|TZ"
    "|[A-Z]+_NUM_THREADS"
    "|GLIBC_TUNABLES|CUDA_VISIBLE_DEVICES|NUMBA_CACHE_DIR|FLEET_TOOLS_TRUSTED_MODULES"
)
"""Names of the environment variables that policies are given."""

_ALONE = ("unshare", "--user", "--map-user=65534", "--pid", "--fork", "--kill-child")
_ALONE += ("--mount-proc", "--")
"""Command that starts a process that sees no other ones, and whose children end with it."""

_TEXT = b"\xc1"
"""First byte of a text on the pipe, which is none of msgpack."""

_GRACE_S = 1.0
"""Time, s, in which the process ends once it has closed its connection."""


class ConfinedPolicy(NeverCopied):
    """A policy that acts in a process of its own.

    Code of others has a new process in each episode, so that it remembers none of them.

    Args:
        source: The policy's source.
        interface: The interface of the environment in which it is to act.
        limit_s: See `PolicyProcess`.
    """

    def __init__(
        self, source: PolicySource, interface: EnvInterface, limit_s: float | None = None
    ) -> None:
        self._source, self._interface, self._limit_s = source, interface, limit_s
        self._client: PolicyClient | None = None
        self._begins = False

    def reset(self) -> None:
        """Lets the next observation begin an episode, in a process that is there by then.

        Raises:
            PolicyError: The policy cannot be made.
        """
        if self._client is not None and self._source.kind == "factory":
            self._client.close()
        if self._client is None or self._client.closed:
            self._client = None
            process = PolicyProcess("act", self._source, self._interface, limit_s=self._limit_s)
            self._client = PolicyClient(process, None, confined=True)
        self._begins = True

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action; whether it is valid, the environment decides.

        Raises:
            PolicyError: It raised an error, returned no numbers, or its process has ended.
        """
        if self._client is None:
            raise PolicyError("act() was called before reset(); call reset() first")
        begins, self._begins = self._begins, False
        return self._client.act(observation, begins=begins)

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`."""
        return {} if self._client is None or self._client.closed else self._client.info()


def find_policy_apart(
    source: str, track: Track = "observations", limit_s: float | None = None
) -> PolicySource:
    """Finds a policy, see `find_policy`; modules of others are imported in another process.

    Args:
        source: See `find_policy`.
        track: In the track `privileged`, it is imported with all that this process has, and code
            that it names may run here, too.
        limit_s: Time limit of the import, s.
    """
    if not is_factory(source):
        return find_policy(source)
    process = PolicyProcess("find", source, limit_s=limit_s, confined=track == "observations")
    with process.exchange():
        told = process.receive(None)
        if isinstance(told, str):
            raise PolicyError(process.told(*read_failure(told)))
        found = read_value(_Found, decode(told))
    process.close()
    if track == "privileged":
        for name in own_code(found.env_kwargs):
            trust(name)
    return PolicySource(found.kind, source, found.content_digest, dict(found.env_kwargs))


class PolicyProcess(PolicyChannel):
    """A process that finds a policy, or makes one and lets it act; it ends with this object.

    It has no environment variables but a few, and an empty folder as its home, working directory
    and place of temporary files, which is removed at its end.

    Args:
        job: What it is to do: "find" and a name, or "act", a source and an interface.
        limit_s: Time limit of each answer, the import of a module included, s.
        confined: Whether it lacks what this process has.
    """

    def __init__(self, *job: Any, limit_s: float | None = None, confined: bool = True) -> None:
        super().__init__()
        self._limit_s, self._late = limit_s, False
        if confined:
            folder = tempfile.mkdtemp(prefix="fleet-tools-policy-")
            self._open.callback(shutil.rmtree, folder, ignore_errors=True)
            self._process = ChildProcess(
                __name__,
                environment=policy_environment() | dict.fromkeys(("HOME", "TMPDIR"), folder),
                folder=Path(folder),
                through=_ALONE if can_be_alone() else (),
            )
        else:
            self._process = ChildProcess(__name__, environment={**os.environ, **SAME_HASHES})
        self._open.callback(self._process.end)
        with self.exchange():
            self.send(pickle.dumps(job))

    @property
    def closed(self) -> bool:
        """Whether the process has ended."""
        return super().closed or self._process.ended

    @property
    def pid(self) -> int:
        """Process identifier."""
        return self._process.pid

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """See `PolicyChannel`; also closed after the time limit, whatever the process sends."""
        with contextlib.ExitStack() as stack:
            if self._limit_s is not None:
                timer = threading.Timer(self._limit_s, self._end_exchange)
                timer.start()
                stack.callback(timer.cancel)
            stack.enter_context(super().exchange())
            yield

    def _end_exchange(self) -> None:
        self._late = True
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._process.connection.fileno())) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

    def send(self, content: bytes) -> None:
        """See `PolicyChannel`."""
        self._process.connection.send_bytes(content)

    def receive(self, timeout_s: float | None) -> bytes | str:
        """See `PolicyChannel`; the process has the limits of an exchange."""
        content = self._process.connection.recv_bytes(MAX_ANSWER)
        is_text = content.startswith(_TEXT)
        return content[1:].decode(errors="replace") if is_text else content

    def reason(self, error: Exception) -> str:
        """See `PolicyChannel`."""
        if isinstance(error, ProtocolError) or self._late:
            self._process.kill()
        if self._late:
            return (
                f"the policy's process did not answer within {self._limit_s:g} s, which is also "
                "the time for importing and making a policy; --timeout sets it"
            )
        if isinstance(error, ProtocolError):
            return "the policy's process answered something else"
        ending = self._process.end(_GRACE_S)  # it may have closed the connection, and live on
        return f"the policy's process ended with {ending}"

    def told(self, code: FailureCode, why: str) -> str:
        """See `PolicyChannel`."""
        return why


def policy_environment() -> dict[str, str]:
    """Returns the environment variables of a policy's process."""
    named = [name.strip() for name in os.environ.get(VARIABLES, "").split(",")]
    given = {k: v for k, v in os.environ.items() if _GIVEN.fullmatch(k) or k in named}
    return given | SAME_HASHES


@functools.cache
def can_be_alone() -> bool:
    """Returns whether processes of policies see no others here, nor can signal them."""
    with contextlib.suppress(OSError):
        return not subprocess.run([*_ALONE, "true"], stderr=subprocess.DEVNULL).returncode
    return False


# --- The process ----------------------------------------------------------------------------


class _Found(Value):
    """What a policy's source is, see `PolicySource`."""

    kind: Kind
    content_digest: str | None
    env_kwargs: EnvKwargs


def main(connection: Connection) -> None:
    """Follows its first message, then answers requests until the connection is closed."""
    begin_alike()
    limit_memory()
    with contextlib.suppress(OSError):  # what the system ends first, where memory is short
        Path("/proc/self/oom_score_adj").write_text("1000")
    # What comes first is of the process that started this one, in whose name this one acts.
    job, *arguments = pickle.loads(connection.recv_bytes())
    try:
        if job == "find":
            found = find_policy(*arguments)
            fields = _Found(
                kind=found.kind, content_digest=found.content_digest, env_kwargs=found.env_kwargs
            )
            return _send(connection, encode(fields.model_dump(mode="json")))
        conversation = Conversation(served_source(*arguments, confined=True))
    except FleetToolsError as error:
        return _send(connection, failure("policy", error, most=2**12))
    _send(connection, conversation.greeting())
    while True:
        try:
            request = connection.recv_bytes()
        except (EOFError, OSError):
            return
        _send(connection, conversation.reply(request).content)


def _send(connection: Connection, content: bytes | str) -> None:
    connection.send_bytes(_TEXT + content.encode() if isinstance(content, str) else content)


def served_source(
    source: PolicySource, interface: EnvInterface, *, confined: bool = False
) -> Served:
    """Returns a policy for the clients of a server, which make environments of one interface.

    Args:
        source: The policy's source.
        interface: The interface.
        confined: See `Served`.
    """

    def make() -> Policy:
        with policy_errors("making it"):
            return source.make(interface)  # pyright: ignore[reportArgumentType]

    hello = Hello(
        policy=source.name[:500],
        blueprint_digest="",
        content_digest=source.content_digest or "",
        observation=describe_observation(interface),
        action=describe_action(interface),
        control_period_s=1.0 / float(interface.metadata["render_fps"]),
        env_kwargs=source.env_kwargs,
    )
    return Served(hello, make, confined)
