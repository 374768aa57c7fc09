"""A process of `speed.py` that steps one environment with random actions.

`python speed_child.py TASK` steps this package's, `python speed_child.py robosuite` robosuite's
Lift, with the interpreter's versions. It imports nothing else of this folder, since an interpreter
with robosuite lacks this package.

The first answer has the versions. Each line with a number of control steps is answered by their
times real time, and by the processor times of resets, s. Actions are drawn uniformly.
"""

import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

import numpy as np

PEER = "robosuite"

Reset = Callable[[int], Any]
Step = Callable[[np.random.Generator], bool]


def _ours(task: str) -> tuple[float, Reset, Step]:
    """Returns the control rate, Hz, a function that resets, and one that steps until the end."""
    from fleet_tools.envs.spec import EnvSpec

    env = EnvSpec.of(task=task).make_tool_use()

    def step(rng: np.random.Generator) -> bool:
        _, _, terminated, truncated, _ = env.step(rng.uniform(-1, 1, 6).astype(np.float32))
        return terminated or truncated

    return env.task.control_rate_hz, lambda seed: env.reset(seed=seed), step


def _peer() -> tuple[float, Reset, Step]:
    """Returns the same of robosuite's Lift, without images."""
    import robosuite  # pyright: ignore[reportMissingImports]

    env: Any = robosuite.make(
        "Lift",
        robots="Panda",
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
    )
    low, high = env.action_spec

    def step(rng: np.random.Generator) -> bool:
        return env.step(rng.uniform(low, high))[2]

    return env.control_freq, lambda _: env.reset(), step


def _measure(
    rate_hz: float, reset: Reset, step: Step, steps: int, seeds: Iterator[int]
) -> dict[str, Any]:
    rng, clock = np.random.default_rng(0), time.process_time
    stepping, resets, ended = 0.0, [], True
    for _ in range(steps):
        if ended:
            started = clock()
            reset(next(seeds))
            resets.append(clock() - started)
        started = clock()
        ended = step(rng)
        stepping += clock() - started
    return {"real_time": steps / rate_hz / stepping, "resets_s": resets}


def _main(name: str) -> None:
    answers = sys.stdout

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps({"answer": value}), file=answers, flush=True)

    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr):
        rate_hz, reset, step = _peer() if name == PEER else _ours(name)
        engine = "mujoco" if name == PEER else "drake"
        answer({"python": sys.version.split()[0], "engine": f"{engine} {version(engine)}"})
        seeds = itertools.count()
        for steps in sys.stdin:
            answer(_measure(rate_hz, reset, step, int(steps), seeds))


if __name__ == "__main__":
    _main(sys.argv[1])
