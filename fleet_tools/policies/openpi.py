"""Servers of openpi as policies; ours speak the same dialect, see `wire_messages`."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.recorded_env import EnvInterface
from fleet_tools.envs.wrappers import require_entries, require_own_actions
from fleet_tools.errors import ConfigError
from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.lerobot_features import FeatureNames
from fleet_tools.policies.policy import NeverCopied
from fleet_tools.policies.policy_client import TIMEOUT_S, WebSocketChannel


class OpenpiPolicy(NeverCopied):
    """Acts as the policy of an openpi server, which sends chunks of actions.

    The entries of a request have the names of LeRobot's features (`lerobot_features`), as in an
    exported dataset, or others by `names`. The token is taken from `server_access`, and sent as an
    API key. Servers keep no episodes, so that `reset` only forgets the rest of a chunk; each
    episode has a connection of its own, for servers whose policies remember. For a server of this
    package, `RemotePolicy` is the client.

    Args:
        env: The environment in which it is to act, or its interface.
        url: Address of the server, such as ws://127.0.0.1:8000.
        prompt: The task in words, which is sent as `prompt`; None sends none.
        names: Names of the request's entries, by LeRobot's name; None takes LeRobot's.
        steps: Number of actions of a chunk that are executed before the next request; None
            executes all.
        timeout_s: Time after which a server that does not answer counts as dead, s.

    Raises:
        ConfigError: A name is of no feature, or the number of steps is not positive; or a
            wrapper changes entries of the observation, or changes actions.
        PolicyError: There is no server, it refuses the client, or it speaks another protocol.
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
        require_own_actions(env)
        self._features = FeatureNames.of(layout)
        known = self._features.features_of_step(
            {name: np.zeros(spec.shape, spec.dtype) for name, spec in layout.items()}
        )
        unknown = sorted(set(names or ()) - set(known))
        if unknown:
            raise ConfigError(
                f"Unknown features: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
            )
        if steps is not None and steps < 1:
            raise ConfigError(f"Expected at least 1 executed action of each chunk; given: {steps}.")
        self._names = dict(names) if names is not None else {name: name for name in known}
        self._action = describe_action(env)
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
        return self._chunk.popleft()

    def close(self) -> None:
        """Closes the connection."""
        self._chunk.clear()
        self._connection.close()

    def _connect(self) -> WebSocketChannel:
        connection = WebSocketChannel(self._url, self._timeout_s)
        with connection.exchange():
            self._receive(connection)  # metadata, which differ from server to server
        return connection

    def _infer(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        features = self._features.features_of_step(observation)
        request: dict[str, Any] = {sent: features[name] for name, sent in self._names.items()}
        if self._prompt is not None:
            request["prompt"] = self._prompt
        with self._connection.exchange():
            self._connection.send(encode(request))
            try:
                chunk = np.asarray(self._receive(self._connection).get("actions"))
            except ValueError:
                raise ProtocolError(
                    "expected `actions` to be an array with rows of equal length"
                ) from None
            if chunk.shape != (len(chunk) if chunk.ndim else 0, *self._action.shape) or not len(
                chunk
            ):
                raise ProtocolError(
                    f"expected `actions` of shape (horizon, *{self._action.shape}); got "
                    f"{chunk.shape}"
                )
            if chunk.dtype.kind not in "fiu":
                raise ProtocolError("actions are finite numbers")
            with np.errstate(over="ignore"):
                chunk = chunk.astype(self._action.dtype)
            if not np.isfinite(chunk).all():
                raise ProtocolError(
                    f"expected `actions` with finite numbers of {self._action.dtype}"
                )
        return chunk

    def _receive(self, connection: WebSocketChannel) -> dict[str, Any]:
        content = connection.receive(self._timeout_s)
        if isinstance(content, str):
            raise ProtocolError(f"the server reported: {content[:500]}")
        return decode(content)
