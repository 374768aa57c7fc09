"""openpi's protocol: its servers act as policies here, and ours answer its clients.

The protocol belongs to the package openpi-client (https://pypi.org/project/openpi-client). Over
WebSocket, the server first sends a map of metadata; each request is a map of an observation's
entries, and its answer a map with `actions`, (horizon, action), or a text that says why not. In its
messages, arrays and NumPy's numbers are maps with keys of bytes:

    {b"__ndarray__": True, b"data": bytes, b"dtype": "<f4", b"shape": [2, 3]}
    {b"__npgeneric__": True, b"data": 1.5, b"dtype": "<f8"}
"""

import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.recorded_env import EnvInterface, interface_of
from fleet_tools.envs.wrappers import ThroughWrappers, require_entries
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.array_codec import (
    ProtocolError,
    pack,
    read_array,
    require_numbers,
    unpack,
)
from fleet_tools.policies.conversation import Conversation, Reply, Served
from fleet_tools.policies.lerobot_features import FeatureNames
from fleet_tools.policies.policy import NeverCopied, episode_seed
from fleet_tools.policies.policy_client import TIMEOUT_S, WebSocketChannel
from fleet_tools.policies.remote_policy import require_acting
from fleet_tools.policies.server_access import SCHEMES
from fleet_tools.policies.wire_messages import (
    Act,
    Acted,
    Failed,
    FailureCode,
    Hello,
    Reset,
    largest_request,
    read_fields,
    require_arrays,
)

RESET = "reset"
"""Name of an entry of a request that, if true, forgets the last episode before it acts."""

_RESET_ENTRY = "reset_entry"
"""Name of the metadata's entry that names it, by which our servers are known."""

_EXTRA = 2**20

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_ARRAY, _NUMBER = b"__ndarray__", b"__npgeneric__"


# --- Messages as bytes ----------------------------------------------------------------------


def encode(message: Mapping[str, Any]) -> bytes:
    """Returns a message as bytes.

    Args:
        message: Plain data, and arrays of numbers.

    Raises:
        ProtocolError: It holds something else.
    """
    return pack(message, _plain)


def decode(content: bytes) -> dict[str, Any]:
    """Reads a message.

    Args:
        content: The bytes; whoever received them has bounded their number.

    Returns:
        Plain data, numbers, and arrays of their own memory.

    Raises:
        ProtocolError: They are no map in openpi's form.
    """
    return unpack(content, _map)


def _plain(value: Any) -> dict[bytes, Any]:
    if isinstance(value, np.generic):
        number = require_numbers(np.asarray(value))
        return {_NUMBER: True, b"data": number.item(), b"dtype": number.dtype.str}
    array = require_numbers(value)
    shape = list(array.shape)
    return {_ARRAY: True, b"data": array.tobytes(), b"dtype": array.dtype.str, b"shape": shape}


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProtocolError("keys occur once")
    if _ARRAY in found:
        return read_array(_dtype(found), found.get(b"shape"), found.get(b"data"))
    if _NUMBER in found:
        value = found.get(b"data")
        if not isinstance(value, bool | int | float):
            raise ProtocolError("a number that is text or nothing")
        try:
            return _dtype(found).type(value)
        except (OverflowError, ValueError):
            raise ProtocolError("a number that its type does not hold") from None
    if not all(isinstance(key, str) for key in found):
        raise ProtocolError("keys are names")
    return found


def _dtype(found: Mapping[Any, Any]) -> np.dtype:
    name = found.get(b"dtype")
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise ProtocolError("an array of something else than numbers")
    return np.dtype(name)


# --- Our server, openpi's clients -----------------------------------------------------------


class OpenpiConversation:
    """One connection: each request has one action, in the form of a chunk of length 1.

    A request has the entries of the hello's observation, whose numbers may have more bits; others,
    such as a prompt, are not read. Episodes are not part of openpi's protocol: the policy begins
    one with the first request, and another one with each request in which `RESET` is true. The
    metadata are the hello's fields.

    Args:
        served: The policy.

    Raises:
        PolicyError: See `Conversation`.
    """

    def __init__(self, served: Served) -> None:
        self._hello = served.hello
        self._conversation = Conversation(served)
        self._requests = 0

    @staticmethod
    def largest_request(hello: Hello) -> int:
        """Returns the largest size of a request, bytes."""
        return 8 * largest_request(hello.observation) + _EXTRA  # other bits, other entries

    @staticmethod
    def refusal(code: FailureCode, why: str) -> Reply:
        """Returns the text that a refused client is told; openpi's clients raise it."""
        return Reply(f"{code}: {why}"[:500] if why else code, closes=True)

    def greeting(self) -> bytes:
        """Returns the metadata."""
        return encode({**self._hello.model_dump(mode="json"), _RESET_ENTRY: RESET})

    def reply(self, content: bytes | str) -> Reply:
        """Replies with an action, or with a text that says why not, after which it closes."""
        begin = time.perf_counter()
        try:
            request = _read(content)
            observation = _observation(self._hello, request)
        except ProtocolError as error:
            return self.refusal("observation", str(error))
        answer = None
        if request.get(RESET) or not self._requests:
            reset = Reset(session=self._requests, seed=episode_seed(observation))
            answer = self._conversation.answer(reset)
        self._requests += 1
        if not isinstance(answer, Failed):
            act = Act(seq=self._requests, time_s=0.0, observation=observation)
            answer = self._conversation.answer(act)
        if isinstance(answer, Failed):
            return self.refusal(answer.code, answer.message)
        assert isinstance(answer, Acted)
        timing = {"infer_ms": 1e3 * (time.perf_counter() - begin)}
        return Reply(encode({"actions": answer.action[None], "server_timing": timing}))


def _read(content: bytes | str) -> dict[str, Any]:
    if isinstance(content, str):
        raise ProtocolError("Not a message: text instead of bytes.")
    return decode(content)


def _observation(hello: Hello, request: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the entries that the policy reads, in its types."""
    found: dict[str, np.ndarray] = {}
    for name, spec in hello.observation.items():
        value = request.get(name)
        if isinstance(value, np.ndarray) and np.can_cast(value.dtype, spec.dtype, "same_kind"):
            with np.errstate(over="ignore"):  # is not finite then, which is refused
                found[name] = value.astype(spec.dtype)
        elif value is not None:
            found[name] = value
    require_arrays(hello.observation, found)
    return found


# --- openpi's server, our policy ------------------------------------------------------------


class OpenpiPolicy(NeverCopied):
    """Acts as the policy of an openpi server, which sends chunks of actions.

    The entries of a request have the names of LeRobot's features (`lerobot_features`), as in an
    exported dataset, or others by `names`. A server of this package (`serve --protocol openpi`) is
    sent the entries that it names. The token is taken from `server_access`, sent as an API
    key. Servers keep no episodes, so that `reset` only forgets the rest of a chunk; each episode
    has a connection of its own, for servers whose policies remember.

    Args:
        env: The environment in which it is to act, or its interface.
        url: Address of the server, such as ws://127.0.0.1:8000.
        prompt: The task in words, which is sent as `prompt`; None sends none.
        names: Names of the request's entries, by LeRobot's name; None takes LeRobot's, or asks a
            server of this package for its names.
        steps: Number of actions of a chunk that are executed before the next request; None
            executes all.
        timeout_s: Time after which a server that does not answer counts as dead, s.

    Raises:
        ConfigError: A name is of no feature, or the number of steps is not positive; or a
            wrapper changes entries of the observation, or cannot be inverted.
        PolicyError: There is no server, it refuses the client, or it speaks otherwise; or a server
            of this package has a policy for other observations or actions.
        MissingLibraryError: A library is absent.
    """

    def __init__(
        self,
        env: gymnasium.Env | EnvInterface,
        url: str,
        prompt: str | None = None,
        names: Mapping[str, str] | None = None,
        steps: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        layout = describe_observation(env)
        require_entries(env, layout)
        self._through_wrappers = ThroughWrappers(env)
        self._features = FeatureNames.of(layout)
        known = self._features.features_of_step(
            {name: np.zeros(spec.shape, spec.dtype) for name, spec in layout.items()}
        )
        unknown = sorted(set(names or ()) - set(known))
        if unknown:
            raise ConfigError(
                f"There is no feature {', '.join(unknown)}; there are: {', '.join(sorted(known))}."
            )
        if steps is not None and steps < 1:
            raise ConfigError(f"At least 1 action of a chunk is executed; given: {steps}.")
        self._names = dict(names) if names is not None else {name: name for name in known}
        self._own_names = names is None
        self._interface, self._action = interface_of(env), describe_action(env)
        self._entries: tuple[str, ...] | None = None
        self._url, self._prompt, self._steps, self._timeout_s = url, prompt, steps, timeout_s
        self._chunk: deque[np.ndarray] = deque()
        self._connection = self._connect()

    def reset(self) -> None:
        """Forgets the rest of the last chunk, and connects anew.

        Raises:
            PolicyError: There is no server, or it refuses the client.
        """
        self.close()
        self._connection = self._connect()

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the next action of the chunk, for `env.step`; the environment clips it.

        Raises:
            PolicyError: The server says why it has none, does not answer, or answers with something
                else than a chunk of finite actions.
        """
        if not self._chunk:
            chunk = self._infer(observation)
            self._chunk.extend(chunk[: self._steps])
        return self._through_wrappers(self._chunk.popleft())

    def close(self) -> None:
        """Closes the connection."""
        self._chunk.clear()
        self._connection.close()

    def _connect(self) -> WebSocketChannel:
        connection = WebSocketChannel(self._url, self._timeout_s, SCHEMES[1])
        with connection.exchange():
            metadata = self._receive(connection)  # which differ from server to server
        if _RESET_ENTRY in metadata and self._own_names:
            try:
                with connection.exchange():
                    hello = read_fields(Hello, metadata)
                require_acting(hello, self._url, self._interface)
            except PolicyError:
                connection.close()
                raise
            self._entries = tuple(hello.observation)
        return connection

    def _infer(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        request: dict[str, object]
        if self._entries is not None:
            request = {name: observation[name] for name in self._entries}
        else:
            features = self._features.features_of_step(observation)
            request = {sent: features[name] for name, sent in self._names.items()}
        if self._prompt is not None:
            request["prompt"] = self._prompt
        with self._connection.exchange():
            self._connection.send(encode(request))
            try:
                chunk = np.asarray(self._receive(self._connection).get("actions"))
            except ValueError:
                raise ProtocolError("actions are an array, whose rows have one length") from None
            if chunk.shape != (len(chunk) if chunk.ndim else 0, *self._action.shape) or not len(
                chunk
            ):
                raise ProtocolError(
                    f"actions have the shape (horizon, *{self._action.shape}); given: {chunk.shape}"
                )
            if chunk.dtype.kind not in "fiu":
                raise ProtocolError("actions are finite numbers")
            with np.errstate(over="ignore"):
                chunk = chunk.astype(self._action.dtype)
            if not np.isfinite(chunk).all():
                raise ProtocolError(f"actions are finite numbers of {self._action.dtype}")
        return chunk

    def _receive(self, connection: WebSocketChannel) -> dict[str, Any]:
        content = connection.receive(self._timeout_s)
        if isinstance(content, str):
            raise ProtocolError(f"it says: {content[:500]}")
        return decode(content)
