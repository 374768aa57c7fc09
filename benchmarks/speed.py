"""How fast the pieces are, on one core: `python benchmarks/speed.py --tool hammer`.

Prints real-time factors of the environment in free motion and in contact, where a dynamics step's
time goes, what a reset costs with and without a rebuild, and what planning costs. Run it on an
idle machine; processor seconds are reported, so that a busy one distorts less.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np

from fleet_tools.registration import make_environment


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tool", default="hammer", help="the package's task for this tool")
    which.add_argument("--task", help="a task's name, or the path of your own")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    task = arguments.task or arguments.tool
    env = make_environment(task=task)
    figures = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        **_stepping(env, arguments.episodes),
        **_controller_share(task),
        **_resets(env),
    }
    if arguments.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:>44}: {_text(value)}" for name, value in figures.items()))


def _stepping(env, episodes: int) -> dict:
    from fleet_tools.experts.policy import ExpertPolicy
    from fleet_tools.simulation import CONTROL_RATE

    expert = ExpertPolicy(env)
    free, contact, planning, lengths = [], [], [], []
    for seed in range(episodes):
        observation, info = env.reset(seed=seed)
        planning.append(_seconds(expert.reset))
        while info["outcome"] == "running":
            action = expert.act(observation)
            start = time.process_time()
            observation, *_, info = env.step(action)
            seconds = time.process_time() - start
            touching = np.abs(observation["joint_external_torque"]).max() > 0
            (contact if touching else free).append(seconds)
        lengths.append(env.get_state().snapshot.step)
    return {
        "real-time factor, whole episodes": (len(free) + len(contact))
        / CONTROL_RATE
        / (sum(free) + sum(contact)),
        "real-time factor, free motion": 1 / CONTROL_RATE / np.mean(free),
        "real-time factor, steps that end in contact": 1 / CONTROL_RATE / np.mean(contact),
        "planning, median ms": 1e3 * np.median(planning),
        "planning, 95% ms": 1e3 * np.percentile(planning, 95),
        "episode, median steps": float(np.median(lengths)),
    }


def _controller_share(task: str) -> dict:
    from fleet_tools.robot import controller

    original = controller.OperationalSpaceController._calc_actuation
    spent = []

    def timed(self, context, output):
        start = time.process_time()
        original(self, context, output)
        spent.append(time.process_time() - start)

    with patch.object(controller.OperationalSpaceController, "_calc_actuation", timed):
        # Drake binds the method when the controller is made.
        fresh = make_environment(task=task)
        fresh.reset(seed=0)
        start = time.process_time()
        for _ in range(30):
            fresh.step(np.zeros(6))
        total = time.process_time() - start
    return {
        "dynamics step in free motion, us": 1e6 * total / len(spent),
        "of which the controller, us": 1e6 * np.mean(spent),
    }


def _resets(env) -> dict:
    env.reset(seed=0)
    scene = env.scene
    reuse = [_seconds(lambda: env.reset(options={"scene": scene})) for _ in range(50)]
    rebuild = []
    for tool in ("claw", "club") * 10 if env.task.name == "hammer" else ():
        other = scene.model_copy(update={"tool": tool})
        rebuild.append(_seconds(lambda scene=other: env.reset(options={"scene": scene})))
    return {
        "reset with reuse, median ms": 1e3 * np.median(reuse),
        **({"reset with rebuild, median ms": 1e3 * np.median(rebuild)} if rebuild else {}),
    }


def _seconds(work: Callable) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _text(value) -> str:
    return value if isinstance(value, str) else f"{value:.1f}"


if __name__ == "__main__":
    main()
