"""Policies that try to see or do what they must not, for tests of their confinement."""

import contextlib
import gc
import os
import pickle
import signal
import struct
import sys
import tempfile
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


SECRET = "hunter2"
"""What the values of variables begin with that no policy is to see."""


class Snooping(Honest):
    """Looks for secrets of variables and large numbers wherever a process may look by itself."""

    known = 2**60 + 1

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        processes = [each for each in Path("/proc").iterdir() if each.name.isdecimal()]
        texts = [str(dict(os.environ)), *(_read(each / "environ") for each in processes)]
        seen: set[int] = set()
        frame = sys._getframe()
        while frame is not None:
            _count_numbers([*frame.f_locals.values()], seen, 4)
            frame = frame.f_back
        _count_numbers(gc.get_objects(), seen, 1)
        self.info = {
            "secrets": sum(SECRET in text for text in texts),
            "processes": len(processes),
            "numbers": sorted(number for number in seen if 2**52 <= number < 2**63),
        }
        raise RuntimeError("seen enough")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _count_numbers(values: list[Any], seen: set[int], depth: int) -> None:
    for value in values:
        if type(value) is int:
            seen.add(value)
        elif depth and isinstance(value, dict):
            _count_numbers([*value.keys(), *value.values()], seen, depth - 1)
        elif depth and isinstance(value, list | tuple | set | frozenset):
            _count_numbers([*value], seen, depth - 1)
        elif depth:
            with contextlib.suppress(Exception):
                _count_numbers([*vars(value).values()], seen, depth - 1)


_resets: list[int] = []


class Noting(Honest):
    """Acts by the notes of earlier episodes that it finds: in memory, and where files are usual."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        _resets.append(1)
        folders = (Path.cwd(), Path.home(), Path(tempfile.gettempdir()))
        found = [len(_resets) - 1, *((each / "notes").exists() for each in folders), 0, 0]
        for each in folders:
            (each / "notes").write_text("seen")
        return np.array(found, np.float32)


class Killing(Honest):
    """Kills whoever started it, with a mark for each time that it is asked."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        with Path(os.environ["FLEET_TOOLS_TEST_MARK"]).open("a") as file:
            file.write("asked\n")
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(3)


class Filling(Honest):
    """Takes memory until there is none."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        first_to_end = int(Path("/proc/self/oom_score_adj").read_text())
        assert first_to_end == 1000
        blocks: list[np.ndarray] = []
        while len(blocks) < 2**14:
            blocks.append(np.empty(2**28, np.uint8))  # which takes room, and touches no memory
        return np.zeros(6)


class Surviving(Honest):
    """Leaves a process that belongs to nobody, and holds its connection."""

    def act(self, observation: dict[str, np.ndarray]) -> Any:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        return np.zeros(6)


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
