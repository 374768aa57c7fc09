"""A confined policy sees observations and nothing else, and what it sends is data."""

import contextlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.confined_policies import SECRET
from support.evaluated import FIRST, SMALL
from support.processes import ROOT, run_command
from support.served_policies import Scripted, constant, hello, serving_as

from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.recorded_env import EnvInterface, interface_of
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.evaluation.trial import guarded, run_trial
from fleet_tools.policies.array_codec import decode, encode
from fleet_tools.policies.confined import (
    VARIABLES,
    ConfinedPolicy,
    PolicyProcess,
    can_be_alone,
    find_policy_apart,
)
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.openpi import OpenpiPolicy
from fleet_tools.policies.policy import begin, episode_seed
from fleet_tools.policies.policy_client import PolicyClient, WebSocketChannel
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.policies.wire_messages import CONTROL

DTYPES = st.sampled_from(["f2", "f4", "f8", ">f4", "i4", "u8", "?"])
MODULE = "support.confined_policies"


@pytest.fixture(name="interface")
def _interface(hammer: ToolUseEnv) -> EnvInterface:
    return interface_of(hammer)


def confined(name: str, interface: EnvInterface) -> ConfinedPolicy:
    return ConfinedPolicy(source_of(name), interface)


def source_of(name: str) -> PolicySource:
    digest = find_policy(f"{MODULE}:Honest").content_digest
    return PolicySource("factory", f"{MODULE}:{name}", digest, {})


def mark(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Names a file in a variable that policies are given."""
    monkeypatch.setenv("FLEET_TOOLS_TEST_MARK", str(path))
    monkeypatch.setenv(VARIABLES, "FLEET_TOOLS_TEST_MARK")


def found(name: str) -> PolicySource:
    return find_policy_apart(f"{MODULE}:{name}")


def test_it_acts_on_observations_bit_for_bit(hammer, interface, capfd):
    observation, _ = hammer.reset(seed=0)
    source = found("Honest")
    assert (source.kind, source.env_kwargs) == ("factory", {"obs_mode": "state"})
    policy = ConfinedPolicy(source, interface)
    for _ in range(2):
        policy.reset()
        action = policy.act(observation)
        expected = observation["tool_keypoints"].ravel()[:6].astype(np.float32)
        assert action.dtype == np.float32 and action.tobytes() == expected.tobytes()
    assert policy.info == {"task": "hammer", "rate": 6}
    printed = capfd.readouterr()
    assert printed.out == "" and "a policy's own output" in printed.err


@pytest.mark.parametrize("name", ["Wrapping", "Planning"])
def test_there_is_no_environment_to_ask(name, hammer, interface):
    observation, _ = hammer.reset(seed=0)
    policy = confined(name, interface)
    with pytest.raises(PolicyError, match=r"given no environment, only its .* --track privileged"):
        policy.reset()
        policy.act(observation)


def test_there_is_no_environment_to_find(hammer, interface):
    observation, _ = hammer.reset(seed=0)
    policy = confined("Searching", interface)
    policy.reset()
    assert policy.act(observation)[:2].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Dying", "process ended with exit code 3"),
        ("Boasting", "process ended with SIGKILL"),
        ("Exiting", "SystemExit: enough"),
        ("Speaking", "six numbers"),
        ("Flooding", "an array of float64 with the shape .1000000,."),
        ("Filling", "act raised at .*MemoryError"),
        ("Missing", "Unknown factory of policies .*'Missing'"),
    ],
)
def test_its_failures_are_errors_of_its_own(name, message, hammer, interface):
    observation, _ = hammer.reset(seed=0)
    policy = confined(name, interface)
    for _ in range(2):  # a new episode finds a new process, where the first one has ended
        with pytest.raises(FleetToolsError, match=message):
            policy.reset()
            policy.act(observation)


def test_what_it_sends_is_never_run(hammer, interface, tmp_path, monkeypatch):
    mark(monkeypatch, tmp_path / "mark")
    observation, _ = hammer.reset(seed=0)
    policy = confined("Smuggling", interface)
    policy.reset()
    with pytest.raises(PolicyError, match="answered something else"):
        policy.act(observation)
    assert not (tmp_path / "mark").exists()


GREETING = encode(hello().model_dump(mode="json"))


@pytest.mark.parametrize("answer", [pickle.dumps(0), encode({"number": 1})], ids=range(2))
def test_what_is_no_answer_ends_its_process(answer):
    """More of it is fuzzed: the kind "answers of confined policies"."""
    channel = Answering(GREETING, answer)
    client = PolicyClient(channel, None, confined=True)
    with pytest.raises(PolicyError, match="answered something else"):
        client.reset()
    assert client.closed and channel.ended


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_side=5)))
def test_its_actions_are_arrays_of_any_numbers(action):
    class Acting:
        def reset(self) -> None:
            pass

        def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
            return action

    talk = Conversation(Served(hello(), Acting, confined=True))
    seen = {"any": np.full(2, np.nan)}
    reply = talk.reply(encode({**seen, CONTROL: {"number": 0, "reset": True}}))
    assert isinstance(reply.content, bytes)
    found = decode(reply.content)["actions"][0, ...]
    assert found.dtype == action.dtype.newbyteorder("=") and found.shape == action.shape
    assert np.array_equal(found, action, equal_nan=True)


@pytest.mark.parametrize("info", ["NaN", "[" * 10**5])
def test_what_is_no_information_is_refused(info):
    channel = Answering(GREETING, encode({"number": 0, "info": info}))
    client = PolicyClient(channel, None, confined=True)
    with pytest.raises(PolicyError, match="answered something else"):
        client.info()


class Answering(PolicyProcess):
    """A process whose answers are scripted."""

    def __init__(self, *answers: bytes) -> None:
        super().__init__("find", "zero")
        self._answers = iter(answers)

    @property
    def ended(self) -> bool:
        return self._process.ended

    def send(self, content: bytes) -> None:
        pass

    def receive(self, timeout_s: float | None) -> bytes:
        try:
            return next(self._answers)
        except StopIteration:
            self._process.kill()
            raise EOFError from None


# --- Attacks --------------------------------------------------------------------------------


@pytest.fixture(name="alone", params=[True, False], ids=["alone", "among others"])
def _alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether policies see no other processes; both are tried where the system allows it."""
    if request.param and not can_be_alone():
        pytest.skip("user namespaces are not allowed here")
    monkeypatch.setattr("fleet_tools.policies.confined.can_be_alone", lambda: request.param)
    return request.param


def test_it_is_sent_no_seed_and_no_secrets(alone, hammer, monkeypatch):
    for name in ("GITHUB_TOKEN", "HF_TOKEN", "FLEET_TOOLS_POLICY_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"{SECRET}-{name}-0123456789")
    (_, trial) = SMALL.trials("hammer", "train", 2)
    policy = guarded(source_of("Snooping"), "observations", hammer, trial.seed)
    episode = run_trial(hammer, policy, SMALL, trial)
    assert "seen enough" in str(episode.error)
    info: Any = episode.info
    assert info["secrets"] == 0 and (info["processes"] == 1) == alone
    assert 2**60 + 1 in info["numbers"] and trial.seed not in info["numbers"]


def test_no_episode_finds_notes_of_another_one(hammer, interface):
    observation, _ = hammer.reset(seed=0)
    policy = confined("Noting", interface)
    for _ in range(2):
        policy.reset()
        assert policy.act(observation).tolist() == [0] * 6


def test_what_it_is_sent_follows_from_the_observation_alone(hammer, monkeypatch):
    """Of each kind of policy in another process: the same bytes in two scenes that look alike."""
    pytest.importorskip("websockets")
    sent: list[bytes] = []
    for channel in (PolicyProcess, WebSocketChannel):
        monkeypatch.setattr(channel, "send", _recording(channel.send, sent))
    seen, _ = hammer.reset(seed=0)
    read = {name: describe_observation(hammer)[name] for name in ("joint_position",)}
    described = hello(
        observation=read,
        action=describe_action(hammer),
        control_period_s=1 / hammer.metadata["render_fps"],
    )
    unread = {name: array + 1 if name not in read else array for name, array in seen.items()}
    with serving_as(Served(described, lambda: Scripted(constant))) as server:
        makers: list[tuple[Callable[[], Any], Mapping[str, np.ndarray]]] = [
            (lambda: confined("Honest", interface_of(hammer)), seen),
            (lambda: PolicySource("remote", server.url, None, {}).make(hammer), unread),
            (lambda: OpenpiPolicy(hammer, server.url, names={"observation.state": "s"}), seen),
        ]
        for make, other in makers:
            messages = []
            for scene, observation in ((FIRST, seen), (FIRST + 1, other)):
                hammer.reset(seed=scene)
                sent.clear()
                policy = make()
                begin(policy, episode_seed(observation))
                with contextlib.suppress(PolicyError):  # the server is none of openpi's
                    policy.act(dict(observation))
                messages.append([*sent])
            assert messages[0] == messages[1] and messages[0]


def _recording(send: Callable[[Any, bytes], None], sent: list[bytes]) -> Callable[..., None]:
    def record(channel: Any, content: bytes) -> None:
        sent.append(content)
        send(channel, content)

    return record


LATE = {
    "sleeps": "time.sleep(1000)",
    "drips": "os.write(fd, bytes([0, 0, 3, 0]))\nwhile True: os.write(fd, b'0'), time.sleep(0.1)",
    "hides": "if os.fork() == 0: os.setsid(), time.sleep(20)\nos._exit(0)",
}


@pytest.mark.parametrize("name", LATE)
def test_an_import_has_a_time_limit(name, alone, tmp_path, monkeypatch):
    first = "import os, time\nfrom support.confined_policies import _connection\n"
    (tmp_path / "late.py").write_text(f"{first}fd = _connection()\n{LATE[name]}\nmake = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    started = time.monotonic()
    with pytest.raises(PolicyError, match=r"within 2 s.*--timeout|ended with exit code 0"):
        find_policy_apart("late:make", limit_s=2.0)
    assert time.monotonic() - started < 15.0


def test_each_answer_has_a_time_limit(hammer, interface):
    observation, _ = hammer.reset(seed=0)
    policy = ConfinedPolicy(source_of("Silent"), interface, limit_s=5.0)
    policy.reset()
    with pytest.raises(PolicyError, match="did not answer within 5 s"):
        policy.act(observation)


def test_nothing_of_it_survives_its_process(hammer, interface):
    if not can_be_alone():
        pytest.skip("user namespaces are not allowed here")
    observation, _ = hammer.reset(seed=0)
    policy = confined("Surviving", interface)
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    policy.reset()
    policy.act(observation)
    children = psutil.Process().children(recursive=True)
    left = [each for each in children if each.pid not in before]
    assert len(left) >= 3  # `unshare`, the policy's process, and the one that it leaves
    del policy
    psutil.wait_procs(left, timeout=10)
    assert not any(map(psutil.Process.is_running, left))


# --- Its process ----------------------------------------------------------------------------


def test_its_module_is_not_imported_here(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("import os\nos.environ['STRANGER'] = '1'\nmake = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("STRANGER", raising=False)
    assert find_policy_apart("stranger:make").source == "stranger:make"
    assert "STRANGER" not in os.environ


def test_its_process_ends_with_it():
    process = PolicyProcess("find", "zero")
    pid = process.pid
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_its_process_ends_with_whoever_started_it(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os\n"
        "from fleet_tools.policies.confined import PolicyProcess\n"
        "process = PolicyProcess('find', 'zero')\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = run_command(sys.executable, str(script), PYTHONPATH=str(ROOT))
    assert parent.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while Path(f"/proc/{int(parent.stdout)}/cmdline").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_it_is_not_copied(interface):
    with pytest.raises(PolicyError, match="ConfinedPolicy cannot be copied"):
        pickle.dumps(confined("Honest", interface))
