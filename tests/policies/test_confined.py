"""A confined policy sees observations and nothing else, and what it sends is data."""

import os
import pickle
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.processes import ROOT, run_command
from support.served_policies import hello

from fleet_tools.envs.recorded_env import EnvInterface, interface_of
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.policies.array_codec import decode, encode
from fleet_tools.policies.confined import ConfinedPolicy, PolicyProcess, find_policy_apart
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.policies.wire_messages import CONTROL

DTYPES = st.sampled_from(["f2", "f4", "f8", ">f4", "i4", "u8", "?"])
MODULE = "support.confined_policies"


@pytest.fixture(name="interface")
def _interface(hammer: ToolUseEnv) -> EnvInterface:
    return interface_of(hammer)


def confined(name: str, interface: EnvInterface) -> ConfinedPolicy:
    digest = find_policy(f"{MODULE}:Honest").content_digest
    return ConfinedPolicy(PolicySource("factory", f"{MODULE}:{name}", digest, {}), interface)


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
    monkeypatch.setenv("FLEET_TOOLS_TEST_MARK", str(tmp_path / "mark"))
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
    with pytest.raises(PolicyError, match="ConfinedPolicy is not copied"):
        pickle.dumps(confined("Honest", interface))
