"""Policies that try to see or do what they must not, for tests of their confinement."""

import gc
import os
import pickle
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


class Honest:
    """Answers with what it was told and what it sees."""

    env_kwargs = {"obs_mode": "state"}

    def __init__(self, env: Any) -> None:
        self._env = env
        self.info: dict[str, Any] = {"task": env.task, "rate": env.metadata["render_fps"]}

    def reset(self) -> None:
        print("a policy's own output")

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        return observation["tool_keypoints"].ravel()[:6].astype(np.float32)


class Wrapping(Honest):
    """Wraps the expert, which plans from the simulator's state."""

    def __init__(self, env: Any) -> None:
        from fleet_tools.experts.policy import ExpertPolicy

        self._expert = ExpertPolicy(env)


class Planning(Honest):
    """Plans with the simulator's own state."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        self._env.set_state(self._env.get_state())


class Searching(Honest):
    """Looks for an environment in memory, and counts what it finds."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        simulators = [name for name in sys.modules if name.startswith("pydrake")]
        found = [each for each in gc.get_objects() if type(each).__name__ == "ToolUseEnv"]
        return np.array([len(simulators), len(found), 0, 0, 0, 0], np.float32)


class Dying(Honest):
    def act(self, observation: dict[str, np.ndarray]) -> Any:
        os._exit(3)


class Exiting(Honest):
    def act(self, observation: dict[str, np.ndarray]) -> Any:
        sys.exit("enough")


class Speaking(Honest):
    def act(self, observation: dict[str, np.ndarray]) -> Any:
        return "forward"


class Flooding(Honest):
    def act(self, observation: dict[str, np.ndarray]) -> Any:
        return np.zeros(10**6)


class Silent(Honest):
    """Never answers."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        time.sleep(1000)


class _Payload:
    def __reduce__(self) -> Any:
        return Path.touch, (Path(os.environ["FLEET_TOOLS_TEST_MARK"]),)


def _connection() -> int:
    (found,) = (int(each.name) for each in Path("/proc/self/fd").iterdir() if each.is_socket())
    return found


class Smuggling(Honest):
    """Answers with a pickle, which whoever reads it as one would run."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        payload = pickle.dumps(_Payload())
        os.write(_connection(), struct.pack("!i", len(payload)) + payload)
        time.sleep(1000)


class Boasting(Honest):
    """Claims that its answer has 2 GiB."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        os.write(_connection(), struct.pack("!i", 2**31 - 1))
        time.sleep(1000)
