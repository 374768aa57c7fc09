"""Both ends of openpi's protocol: our server for its clients, and our client for its servers."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("websockets")

from support.served_policies import Remembering, Scripted, constant, observation, serving
from websockets.sync.client import connect

import fleet_tools  # noqa: F401  (registers the environments)
from fleet_tools.envs.array_spec import describe_observation
from fleet_tools.envs.observation_modes import OBS_MODES
from fleet_tools.envs.recorded_env import EnvInterface, interface_of
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies import openpi
from fleet_tools.policies.conversation import Reply, Served
from fleet_tools.policies.lerobot_features import FeatureNames
from fleet_tools.policies.openpi import OpenpiConversation, OpenpiPolicy
from fleet_tools.policies.policy import episode_seed
from fleet_tools.policies.server_access import TOKEN_VARIABLE, Access
from fleet_tools.policies.wire_messages import FailureCode, Hello

OPENPI_PYTHON = os.environ.get("FLEET_TOOLS_OPENPI_PYTHON")
TOKEN = "0123456789abcdef0123456789abcdef"


def expected(seeds: range) -> list[bytes]:
    policy = Remembering()
    policy.reset()
    return [policy.act(observation(seed)).tobytes() for seed in seeds]


@contextmanager
def answering(make: Callable[[], Any]) -> Iterator[Any]:
    """Serves a policy, and connects as a client of openpi does."""
    with (
        serving(make, dialect=OpenpiConversation) as server,
        connect(server.url, compression=None) as client,
    ):
        yield client


def asked(connection: Any, request: dict[str, Any]) -> dict[str, Any] | str:
    connection.send(openpi.encode(request))
    answer = connection.recv(timeout=10)
    return answer if isinstance(answer, str) else openpi.decode(answer)


def test_our_server_answers_with_the_policy_s_actions():
    with answering(Remembering) as client:
        metadata = openpi.decode(client.recv(timeout=10))
        assert metadata["action"]["shape"] == [6] and metadata["reset_entry"] == "reset"
        found = []
        for seed in range(4):
            wider = observation(seed)
            wider["state"] = wider["state"].astype(np.float64)
            answer = asked(client, {**wider, "prompt": "hit the pin", "reset": seed == 0})
            assert isinstance(answer, dict) and answer["server_timing"]["infer_ms"] >= 0
            found.append(answer["actions"][0].tobytes())
        assert found == expected(range(4))
        answer = asked(client, {**observation(0), "reset": True})  # begins anew
        assert isinstance(answer, dict)
        assert answer["actions"][0].tobytes() == found[0]


REFUSED = {
    "a missing entry": ({"state": None}, "'tool_cloud' is missing"),
    "another shape": ({**observation(), "state": np.zeros(4)}, "'state' is float32"),
    "numbers for pixels": ({**observation(), "wrist_rgb": np.zeros((2, 3, 3))}, "'wrist_rgb' is"),
    "a number that overflows": ({**observation(), "state": np.full(3, 1e300)}, "not finite"),
}


def test_what_the_policy_cannot_read_is_refused_in_words():
    with serving(Remembering, dialect=OpenpiConversation) as server:
        for name, (request, message) in REFUSED.items():
            with connect(server.url, compression=None) as client:
                client.recv(timeout=10)
                answer = asked(client, request)
                assert isinstance(answer, str) and message in answer, name


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
    with serving(Remembering, Access(token=TOKEN), dialect=OpenpiConversation) as server:
        command = [str(OPENPI_PYTHON), "-c", script, server.url, str(tmp_path), TOKEN]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(command, check=True, timeout=60, env=environment)
    actions = np.load(tmp_path / "actions.npy")
    assert [action.tobytes() for action in actions] == expected(range(4))


class Chunks:
    """A foreign server: any metadata, and chunks of actions by a function of the request."""

    act: Callable[[dict[str, Any]], Any]

    def __init__(self, served: Served) -> None:
        pass

    @staticmethod
    def largest_request(hello: Hello) -> int:
        return 2**24

    @staticmethod
    def refusal(code: FailureCode, why: str) -> Reply:
        return Reply(why, closes=True)

    def greeting(self) -> bytes:
        return openpi.encode({"name": "foreign"})

    def reply(self, content: bytes | str) -> Reply:
        assert isinstance(content, bytes)
        answer = type(self).act(openpi.decode(content))
        return Reply(answer if isinstance(answer, str | bytes) else openpi.encode(answer))


@contextmanager
def foreign(act: Callable[[dict[str, Any]], Any], access: Access | None = None) -> Iterator[str]:
    dialect = type("Foreign", (Chunks,), {"act": staticmethod(act)})
    with serving(lambda: Scripted(constant), access, dialect=dialect) as server:
        yield server.url


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
    with pytest.raises(ConfigError, match=r"no feature observation\.images\.front"):
        OpenpiPolicy(env, "ws://127.0.0.1:1", names={"observation.images.front": "image"})
    with pytest.raises(ConfigError, match="given: 0"):
        OpenpiPolicy(env, "ws://127.0.0.1:1", steps=0)
    with pytest.raises(PolicyError):
        OpenpiPolicy(env, "ws://127.0.0.1:1")
    with pytest.raises(ConfigError, match="another machine"):
        OpenpiPolicy(env, "ws://192.0.2.1:8000")


def test_the_token_is_sent_as_an_api_key(env, monkeypatch):
    with foreign(lambda _: {"actions": np.ones((1, 6))}, Access(token=TOKEN)) as url:
        with pytest.raises(PolicyError, match="asks for a token"):
            OpenpiPolicy(env, url)
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        policy = OpenpiPolicy(env, url)
        assert policy.act(seen(env)).tolist() == [1] * 6
        policy.close()


def interface(**env_kwargs: Any) -> EnvInterface:
    env = gymnasium.make("FleetTools/Hammer-v0", **env_kwargs)
    env.close()
    return interface_of(env)


class Summing:
    """Acts on all numbers since its reset, and the episode's seed."""

    def reset(self, seed: int = 0) -> None:
        self.sum = seed / 2**63

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        for name in sorted(observation):
            finite = np.nan_to_num(observation[name], posinf=-1.0)
            self.sum += float(finite.mean(dtype=np.float64))
        return np.full(6, np.sin(self.sum), np.float32)


@pytest.mark.parametrize("mode", OBS_MODES)
def test_our_client_acts_as_the_policy_of_our_server(mode):
    env = interface(obs_mode=mode, camera_size=(32, 24))
    described = {
        "observation": describe_observation(env),
        "action": env.action_spec,
        "control_period_s": 1.0 / env.metadata["render_fps"],
    }
    observations = [env.observation_space.sample() for _ in range(4)]
    for each in observations:
        for name, spec in env.features.items():
            if spec.kind == "depth":
                each[name][0, 0] = np.inf  # nothing is in range there
    with serving(Summing, dialect=OpenpiConversation, **described) as server:
        policy, here = OpenpiPolicy(env, server.url), Summing()
        for _ in range(2):
            policy.reset()
            here.reset(episode_seed(observations[0]))
            for each in observations:
                assert policy.act(each).tobytes() == here.act(each).tobytes()
        policy.close()
        other = interface(obs_mode="state" if mode != "state" else "multitask_state")
        with pytest.raises(PolicyError, match="cannot act here"):
            OpenpiPolicy(other, server.url)
