"""Our client for openpi's servers, and our server for openpi's client."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("websockets")

from support.served_policies import Remembering, observation, serving
from websockets.sync.server import serve

import fleet_tools  # noqa: F401  (registers the environments)
from fleet_tools.envs.array_spec import describe_observation
from fleet_tools.envs.recorded_env import interface_of
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.array_codec import decode, encode
from fleet_tools.policies.lerobot_features import FeatureNames
from fleet_tools.policies.openpi import OpenpiPolicy
from fleet_tools.policies.server_access import TOKEN_VARIABLE

OPENPI_PYTHON = os.environ.get("FLEET_TOOLS_OPENPI_PYTHON")
TOKEN = "0123456789abcdef0123456789abcdef"


def expected(seeds: range) -> list[bytes]:
    policy = Remembering()
    policy.reset()
    return [policy.act(observation(seed)).tobytes() for seed in seeds]


@pytest.mark.skipif(
    OPENPI_PYTHON is None,
    reason="needs FLEET_TOOLS_OPENPI_PYTHON, the Python of an environment with openpi-client",
)
def test_the_client_of_openpi_is_answered(tmp_path):
    script = """
import sys, numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy
client = WebsocketClientPolicy(sys.argv[1], api_key=sys.argv[3])
assert client.get_server_metadata()["policy"] == "a policy of the tests"
actions = []
for k in range(4):
    observation = dict(np.load(f"{sys.argv[2]}/{k}.npz"))
    actions.append(client.infer({**observation, "prompt": "go"})["actions"])
np.save(f"{sys.argv[2]}/actions.npy", np.concatenate(actions))
"""
    for seed in range(4):
        np.savez(tmp_path / f"{seed}.npz", **observation(seed))  # type: ignore[arg-type]
    with serving(Remembering, token=TOKEN) as server:
        command = [str(OPENPI_PYTHON), "-c", script, server.url, str(tmp_path), TOKEN]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(command, check=True, timeout=60, env=environment)
    actions = np.load(tmp_path / "actions.npy")
    assert [action.tobytes() for action in actions] == expected(range(4))


@contextmanager
def foreign(act: Callable[[dict[str, Any]], Any], token: str | None = None) -> Iterator[str]:
    """Serves chunks of actions by a function of the request, as another package would."""

    def admit(connection: Any, request: Any) -> Any:
        given = request.headers.get("Authorization")
        return connection.respond(401, "") if token and given != f"Api-Key {token}" else None

    def handle(connection: Any) -> None:
        connection.send(encode({"name": "foreign"}))
        for content in connection:
            answer = act(decode(content))
            connection.send(answer if isinstance(answer, str) else encode(answer))

    with serve(handle, "127.0.0.1", 0, compression=None, process_request=admit) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
    thread.join()


@pytest.fixture(name="env", scope="module")
def _env() -> Iterator[gymnasium.Env]:
    env = gymnasium.make("FleetTools/Hammer-v0")
    yield env
    env.close()


def seen(env: gymnasium.Env) -> dict[str, np.ndarray]:
    return interface_of(env).observation_space.sample()


def test_chunks_are_executed_and_asked_for_anew(env):
    requests: list[dict[str, Any]] = []

    def act(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        return {"actions": np.arange(30, dtype=np.float64).reshape(5, 6) + 100 * len(requests)}

    with foreign(act) as url:
        policy = OpenpiPolicy(env, url, prompt="hit the pin", steps=3)
        policy.reset()
        given = [seen(env) for _ in range(7)]
        actions = [policy.act(each) for each in given]
        policy.reset()
        anew = policy.act(given[0])
        policy.close()
    assert [action[0] for action in actions] == [100, 106, 112, 200, 206, 212, 300]
    assert anew[0] == 400 and anew.dtype == np.float32
    names = FeatureNames.of(describe_observation(env))
    for request, step in zip(requests, (0, 3, 6, 0), strict=True):
        features = names.features_of_step(given[step])
        assert request.pop("prompt") == "hit the pin" and request.keys() == features.keys()
        for name, array in features.items():
            assert np.array_equal(request[name], array, equal_nan=True)


WRONG = {
    "text": "there is no model",
    "no chunk": {"actions": np.zeros(6)},
    "numbers beyond float32": {"actions": np.full((2, 6), 1e300)},
    "rows of several lengths": {"actions": [[0.0] * 6, 0.0]},
}
"""More of it is fuzzed: the kind "answers of policy servers"."""


@pytest.mark.parametrize("name", WRONG)
def test_what_a_server_must_not_answer_is_an_error_of_the_policy(name, env):
    with foreign(lambda request: WRONG[name]) as url:
        policy = OpenpiPolicy(env, url)
        with pytest.raises(PolicyError, match="The policy's server"):
            policy.act(seen(env))
        policy.reset()  # connects anew


def test_what_cannot_be_asked_for_is_refused(env):
    with pytest.raises(ConfigError, match=r"Unknown features: observation\.images\.front"):
        OpenpiPolicy(env, "ws://127.0.0.1:1", names={"observation.images.front": "image"})
    with pytest.raises(ConfigError, match="given: 0"):
        OpenpiPolicy(env, "ws://127.0.0.1:1", steps=0)
    with pytest.raises(PolicyError):
        OpenpiPolicy(env, "ws://127.0.0.1:1")
    with pytest.raises(ConfigError, match="another machine"):
        OpenpiPolicy(env, "ws://192.0.2.1:8000")


def test_the_token_is_sent_as_an_api_key(env, monkeypatch):
    with foreign(lambda _: {"actions": np.ones((1, 6))}, TOKEN) as url:
        with pytest.raises(PolicyError, match="asks for a token"):
            OpenpiPolicy(env, url)
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        policy = OpenpiPolicy(env, url)
        assert policy.act(seen(env)).tolist() == [1] * 6
        policy.close()
