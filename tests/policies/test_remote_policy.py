"""A served checkpoint acts in every program as it does in process, bit for bit."""

import copy
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("websockets")

import numpy as np
import yaml
from gymnasium import wrappers
from support.evaluated import SMALL, a_result
from support.processes import ROOT, run_command, serving_program
from support.served_policies import serving_as
from support.small_checkpoints import untrained

from fleet_tools import serve
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import RecurrentConfig
from fleet_tools.baselines.policies.policy import (
    NetworkPolicy,
    load_checkpoint_policy,
    served_checkpoint,
)
from fleet_tools.config.tasks import task_path
from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.envs.outcomes import POLICY_ERROR, TIME_LIMIT
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol_file import with_task
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.run import describe
from fleet_tools.evaluation.trial import make_trials
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.remote_policy import RemotePolicy
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.storage.provenance import installed_packages

STEPS = 8
CONFIGS = {
    "mlp": None,
    "elman": PolicyConfig(body=RecurrentConfig(type="elman", layers=2, width=8)),
}


@pytest.fixture(name="task", scope="module")
def _task(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The task of the hammer with few control steps."""
    path = tmp_path_factory.mktemp("tasks") / "short.yaml"
    task = yaml.safe_load(task_path("hammer").read_text())
    path.write_text(yaml.safe_dump(task | {"name": "short", "time_limit_s": STEPS / 6}))
    return str(path)


@pytest.fixture(name="checkpoints", scope="module")
def _checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        name: Path(untrained(folder / f"{name}.safetensors", config))
        for name, config in CONFIGS.items()
    }


@pytest.mark.parametrize("name", [pytest.param("mlp", marks=pytest.mark.slow), "elman"])
def test_evaluations_and_collections_are_the_same_bit_for_bit(name, checkpoints, task):
    checkpoint = checkpoints[name]
    protocol, _ = with_task(SMALL, task)
    trials = protocol.trials(split="train", scenes=1)
    with serving_as(served_checkpoint(checkpoint)) as server:
        found = {}
        for source in (str(checkpoint), server.url):
            policy = find_policy(source)
            provenance = PolicyProvenance.of(policy)
            assert provenance.track == "observations"
            result = a_result(protocol, policy=provenance, packages=installed_packages())
            run = make_trials(result, policy)
            found[source] = [run(trial) for trial in trials]
        here, there = found.values()
        assert [each.outcome for each in here] == [TIME_LIMIT]
        assert [each.actions for each in there] == [each.actions for each in here]
        assert [each.state_digest for each in there] == [each.state_digest for each in here]
        assert find_policy(server.url).content_digest == find_policy(str(checkpoint)).content_digest
        collected = collect_episode(task, trials[0].seed, policy=server.url, split="train")
    env = EnvSpec.of(task=task, split="train").make_tool_use()
    direct = rollout(env, load_checkpoint_policy(checkpoint, env), seed=trials[0].seed)
    assert collected.actions.tobytes() == direct.actions.tobytes()
    assert decode_actions(here[0].actions).tobytes() == direct.actions.tobytes()


class Closing:
    """A network that has something done in its fourth step."""

    def __init__(self, network: NetworkPolicy, close: Callable[[], None]) -> None:
        self._network, self._close, self._step = network, close, 0

    def reset(self) -> None:
        self._network.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        self._step += 1
        if self._step == 4:
            self._close()
        return self._network.act(observation)


def test_a_server_that_ends_costs_the_episode_and_not_the_evaluation(checkpoints, task):
    served = served_checkpoint(checkpoints["mlp"])
    closing: list[threading.Thread] = []

    def make() -> Closing:
        network = served.make()
        assert isinstance(network, NetworkPolicy)

        def close() -> None:
            closing.append(threading.Thread(target=server.close))
            closing[-1].start()
            time.sleep(0.3)  # until the connection is closed

        return Closing(network, close)

    protocol, _ = with_task(SMALL, task)
    trials = protocol.trials(split="train", scenes=3)
    with serving_as(Served(served.hello, make)) as server:
        policy = find_policy(server.url)
        provenance = PolicyProvenance.of(policy)
        result = a_result(protocol, policy=provenance, packages=installed_packages())
        run = make_trials(result, policy)
        first = run(trials[0])
    closing[0].join()
    assert (first.outcome, first.steps) == (POLICY_ERROR, 3)
    assert "server" in str(first.error)
    second = run(trials[1])  # there is nothing to connect to
    assert (second.outcome, second.steps) == (POLICY_ERROR, 0)
    port = int(policy.source.rpartition(":")[2])
    with serving_as(served, port=port):
        third = run(trials[2])
    assert (third.outcome, third.steps) == (TIME_LIMIT, STEPS)
    with serving_as(served_checkpoint(checkpoints["elman"]), port=port):
        other = run(trials[0])
    assert other.outcome == POLICY_ERROR and "now serves another policy" in str(other.error)


def test_nothing_begins_where_the_policy_cannot_act(checkpoints):
    with serving_as(served_checkpoint(checkpoints["mlp"])) as server:
        with pytest.raises(PolicyError, match=r"cannot act in the task 'knife'.*tool_keypoints"):
            describe(EvaluationConfig(policy=server.url))
        _, result, _ = describe(EvaluationConfig(policy=server.url, tool="hammer"))
        assert (result.policy.kind, result.policy.name) == ("remote", server.url)
        assert result.policy.env_kwargs == {"obs_mode": "state"}
    served = served_checkpoint(checkpoints["mlp"])
    hello = served.hello
    action = hello.action.model_copy(update={"rate_hz": 20.0})
    fast = hello.model_copy(update={"action": action, "control_period_s": 0.05})
    with serving_as(replace(served, hello=fast)) as server:
        env = EnvSpec.of(task="hammer").make_tool_use()
        with pytest.raises(PolicyError, match=r"period is 0.166667 s, not 0.05 s"):
            find_policy(server.url).make(env)
    with pytest.raises(PolicyError, match="refused"):
        find_policy(server.url)


# --- The program ----------------------------------------------------------------------------


def test_the_program_serves_until_it_is_told_to_end(checkpoints, hammer):
    with serving_program("serve", str(checkpoints["mlp"])) as ready:
        assert ready["hello"]["policy"] == "mlp.safetensors"
        policy = find_policy(ready["url"]).make(hammer)
        observation, _ = hammer.reset(seed=0)
        policy.reset()
        expected = load_checkpoint_policy(checkpoints["mlp"], hammer).act(observation)
        assert policy.act(observation).tobytes() == expected.tobytes()


def test_the_program_serves_a_factory_of_one_task(hammer, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tests'}")
    honest = "support.confined_policies:Honest"
    with serving_program("serve", honest, "--tool", "hammer") as ready:
        assert (ready["hello"]["policy"], ready["hello"]["env_kwargs"]["obs_mode"]) == (
            honest,
            "state",
        )
        policy = find_policy(ready["url"]).make(hammer)
        observation, _ = hammer.reset(seed=0)
        policy.reset()
        expected = observation["tool_keypoints"].ravel()[:6].astype(np.float32)
        assert policy.act(observation).tobytes() == expected.tobytes()
    assert serve.main([honest]) == 2
    assert "Choose one with --tool" in capsys.readouterr().err


BROKEN = """
import os, socket, stat, sys, threading
from fleet_tools import serve

def listens_no_more():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                each = socket.socket(fileno=os.dup(int(name)))
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

class Printing:  # it is ready as soon as it has printed its address
    def write(self, text):
        threading.Timer(0.5, listens_no_more).start()
    def flush(self):
        pass

sys.stdout = Printing()
sys.exit(serve.main([sys.argv[1], "--port", "0"]))
"""


@pytest.mark.slow  # of the server that ends: tests/policies/test_policy_server.py
def test_the_program_says_why_it_ends(checkpoints):
    done = run_command(sys.executable, "-c", BROKEN, str(checkpoints["mlp"]))
    assert done.returncode == 1
    assert "The server stopped listening" in done.stderr and "Traceback" not in done.stderr


def test_the_program_refuses_before_it_listens(checkpoints, tmp_path, capsys):
    given = str(checkpoints["mlp"])
    for arguments, message in (
        ([given, "--token-file", "absent"], "holds no token"),
        ([str(tmp_path / "absent.safetensors")], "is not a checkpoint"),
    ):
        assert serve.main([*arguments, "--port", "0"]) == 2
        assert message in capsys.readouterr().err


def test_it_acts_through_wrappers_and_is_not_copied(checkpoints, hammer):
    limited = wrappers.TimeLimit(hammer, 500)
    with serving_as(served_checkpoint(checkpoints["mlp"])) as server:
        for hiding in (wrappers.FlattenObservation(hammer), wrappers.StickyAction(hammer, 0.1)):
            with pytest.raises(ConfigError, match=type(hiding).__name__):
                RemotePolicy(server.url, hiding)
        actions = []
        for env in (hammer, limited):
            observation, _ = env.reset(seed=0)
            policy = RemotePolicy(server.url, env)
            policy.reset()
            *_, info = env.step(policy.act(observation))
            actions.append(info["action"].tobytes())
            for copied in (copy.deepcopy, pickle.dumps):
                with pytest.raises(PolicyError, match="RemotePolicy cannot be copied"):
                    copied(policy)
            policy.close()
    assert actions[0] == actions[1]
