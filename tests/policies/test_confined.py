"""A confined policy sees observations and nothing else, and what it sends is data."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.processes import ROOT

from fleet_tools.envs.recorded_env import EnvInterface, interface_of
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.policies.confined import ConfinedPolicy, PolicyProcess, find_policy_apart
from fleet_tools.policies.sources import PolicySource, find_policy

MODULE = "support.confined_policies"


@pytest.fixture(name="interface")
def _interface(hammer: ToolUseEnv) -> EnvInterface:
    return interface_of(hammer)


def confined(name: str, interface: EnvInterface) -> ConfinedPolicy:
    digest = find_policy(f"{MODULE}:Honest").content_digest
    return ConfinedPolicy(PolicySource("factory", f"{MODULE}:{name}", digest, {}), interface)


def found(name: str) -> PolicySource:
    return find_policy_apart(f"{MODULE}:{name}")


def test_it_acts_on_observations_bit_for_bit(
    hammer: ToolUseEnv, interface: EnvInterface, capfd: pytest.CaptureFixture[str]
) -> None:
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
def test_there_is_no_environment_to_ask(
    name: str, hammer: ToolUseEnv, interface: EnvInterface
) -> None:
    observation, _ = hammer.reset(seed=0)
    policy = confined(name, interface)
    with pytest.raises(PolicyError, match=r"given no environment, only its .* --track privileged"):
        policy.reset()
        policy.act(observation)


def test_there_is_no_environment_to_find(hammer: ToolUseEnv, interface: EnvInterface) -> None:
    observation, _ = hammer.reset(seed=0)
    policy = confined("Searching", interface)
    policy.reset()
    assert policy.act(observation)[:2].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Dying", "process ended with exit code 3"),
        ("Exiting", "SystemExit: enough"),
        ("Speaking", "six numbers"),
        ("Flooding", "an array of float64 with the shape .1000000,."),
        ("Missing", "Unknown factory of policies .*'Missing'"),
    ],
)
def test_its_failures_are_errors_of_its_own(
    name: str, message: str, hammer: ToolUseEnv, interface: EnvInterface
) -> None:
    observation, _ = hammer.reset(seed=0)
    policy = confined(name, interface)
    for _ in range(2):  # a new episode finds a new process, where the first one has ended
        with pytest.raises(FleetToolsError, match=message):
            policy.reset()
            policy.act(observation)


def test_what_it_sends_is_never_run(
    hammer: ToolUseEnv, interface: EnvInterface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_TOOLS_TEST_MARK", str(tmp_path / "mark"))
    observation, _ = hammer.reset(seed=0)
    policy = confined("Smuggling", interface)
    policy.reset()
    with pytest.raises(PolicyError, match="answered something else"):
        policy.act(observation)
    assert not (tmp_path / "mark").exists()


def test_its_module_is_not_imported_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger.py").write_text("import os\nos.environ['STRANGER'] = '1'\nmake = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("STRANGER", raising=False)
    assert find_policy_apart("stranger:make").source == "stranger:make"
    assert "STRANGER" not in os.environ


def test_its_process_ends_with_it() -> None:
    process = PolicyProcess()
    pid = process._process.pid
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_its_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os\n"
        "from fleet_tools.policies.confined import PolicyProcess\n"
        "process = PolicyProcess()\n"
        "print(process._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    assert parent.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while Path(f"/proc/{int(parent.stdout)}/cmdline").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_it_is_not_copied(interface: EnvInterface) -> None:
    with pytest.raises(PolicyError, match="ConfinedPolicy is not copied"):
        pickle.dumps(confined("Honest", interface))
