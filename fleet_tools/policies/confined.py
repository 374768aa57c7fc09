"""Policies in processes of their own, which see observations and nothing else.

The process is new and not forked, and has no environment: it is sent the interface of one, then
observations. It answers with JSON, so that nothing it sends is run here. This keeps a policy from
what it must not see by any ordinary means; it is no sandbox, since the process has its user's
rights.
"""

import base64
import json
import pickle
import socket
import subprocess
import sys
import weakref
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fleet_tools.envs.interface import EnvInterface
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.policies.sources import PolicySource, find_policy

LONGEST_REPLY = 2**20
"""Largest size of an answer, bytes."""

_LARGEST_ACTION = 4096  # bytes; whether an action is valid, the environment decides


class ConfinedPolicy:
    """A policy that acts in a process of its own.

    Args:
        source: The policy's source.
        interface: The interface of the environment in which it is to act.
        seed: See `PolicySource.make`.
    """

    def __init__(self, source: PolicySource, interface: EnvInterface, seed: int = 0) -> None:
        self._source, self._interface, self._seed = source, interface, seed
        self._process: PolicyProcess | None = None

    def reset(self) -> None:
        """Resets the policy, and makes it anew if its process has ended.

        Raises:
            PolicyError: It cannot be made, or raised an error.
        """
        if self._process is None or self._process.ended:
            self._process = PolicyProcess()
            try:
                self._process.ask("make", self._source, self._interface, self._seed)
            except PolicyError:
                self._process = None
                raise
        self._process.ask("reset")

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action; whether it is valid, the environment decides.

        Raises:
            PolicyError: It raised an error, returned no numbers, or its process has ended.
        """
        if self._process is None:
            raise PolicyError("reset() comes before act()")
        return _array(self._process.ask("act", observation))

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`."""
        if self._process is None or self._process.ended:
            return {}
        found = self._process.ask("info")
        return found if isinstance(found, dict) else {}


def find_policy_apart(source: str) -> PolicySource:
    """Finds a policy, see `find_policy`; modules of others are imported in another process."""
    if ":" not in source:
        return find_policy(source)
    kind, digest, env_kwargs = PolicyProcess().ask("find", source)
    return PolicySource(kind, source, digest, env_kwargs)


class PolicyProcess:
    """A process that makes a policy and lets it act; it ends with this object."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        with there:
            command = [sys.executable, "-m", "fleet_tools.policies.confined_process"]
            self._process = subprocess.Popen(
                [*command, str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,  # results are printed to stdout; a policy's own output is none
                pass_fds=[there.fileno()],
                start_new_session=True,  # Ctrl-C waits for episodes in progress
            )
        self._connection = Connection(here.detach())
        weakref.finalize(self, _end, self._process, self._connection)
        self._send(sys.path)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def ask(self, request: str, *arguments: Any) -> Any:
        """Returns the answer to a request, plain data.

        Raises:
            PolicyError: The policy raised an error, or its process has ended.
            FleetToolsError: An error of this package, such as an unknown name.
        """
        self._send((request, *arguments))
        try:
            reply = json.loads(self._connection.recv_bytes(LONGEST_REPLY))
            error, answer = reply["error"], reply["answer"]
        except (OSError, EOFError) as lost:
            raise self._lost() from lost
        except (ValueError, TypeError, KeyError, RecursionError) as garbled:
            self._process.kill()
            raise PolicyError("the policy's process answered something else") from garbled
        if error is not None:
            raise PolicyError(str(error))
        return answer

    def _send(self, message: Any) -> None:
        try:
            self._connection.send_bytes(pickle.dumps(message))
        except OSError as lost:
            raise self._lost() from lost

    def _lost(self) -> FleetToolsError:
        self._process.kill()  # where it closed the connection and lives on
        return PolicyError(f"the policy's process ended with exit code {self._process.wait()}")


def plain(action: np.ndarray) -> dict[str, Any]:
    """Returns an array as plain data, see `_array`.

    Raises:
        PolicyError: It holds no numbers, or too many.
    """
    if action.dtype.kind not in "biuf" or action.nbytes > _LARGEST_ACTION:
        what = f"an array of {action.dtype} with the shape {action.shape}"
        raise PolicyError(f"act returned {what}; an action is six numbers")
    data = base64.b64encode(np.ascontiguousarray(action).tobytes()).decode()
    return {"dtype": action.dtype.str, "shape": action.shape, "data": data}


def _array(answer: Any) -> np.ndarray:
    """Returns the array of `plain`.

    Raises:
        PolicyError: It is something else.
    """
    try:
        dtype = np.dtype(str(answer["dtype"]))
        if dtype.kind not in "biuf":
            raise ValueError(f"{dtype} is no type of numbers")
        flat = np.frombuffer(base64.b64decode(answer["data"]), dtype)
        return flat.reshape(answer["shape"]).copy()
    except (KeyError, TypeError, ValueError) as error:
        raise PolicyError(f"the policy's process answered with no action: {error}") from None


def _end(process: subprocess.Popen, connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()
