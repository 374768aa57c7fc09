"""What seeing costs: `python benchmarks/cameras.py`.

For each task, mode of observation and resolution: processor time of an environment's step while
the expert works, and how much of it is the observation's, on one core; then how many steps a second
several processes make together. Processor time distorts less on a busy machine; run it on an idle
one all the same.
"""

import argparse
import json
import multiprocessing
import time

import numpy as np
from speed import expert_steps

from fleet_tools.utils.machine import machine_name

MODES = [
    ("state", (320, 240)),
    ("point_cloud", (320, 240)),
    ("point_cloud", (640, 480)),
    ("rgbd", (320, 240)),
    ("rgbd", (640, 480)),
]


def main() -> None:
    """Runs the program."""
    from fleet_tools.config.tasks import task_names

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default="all", help="a task of the package, or all (the default)")
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    machine = machine_name()
    report = print if not arguments.json else lambda *_, **__: None
    report(f"On {machine}. Milliseconds of one core, mean (95% of the observations take less):")
    figures = {"machine": machine, "steps": [], "scaling": []}
    for task in task_names() if arguments.tool == "all" else [arguments.tool]:
        for mode, size in MODES:
            took = measure(task, mode, size, arguments.episodes)
            figures["steps"].append({"task": task, "mode": mode, "size": size, **took})
            report(
                f"{task:>8} {mode:>12} {size[0]} x {size[1]}: step {took['step_ms']:.1f}, of which "
                f"the observation {took['observation_ms']:.1f} ({took['observation_95_ms']:.1f})",
                flush=True,
            )
    task = figures["steps"][0]["task"]
    for count in arguments.processes:
        rate = steps_a_second(task, count)
        figures["scaling"].append({"task": task, "processes": count, "steps_a_second": rate})
        report(f"{task}, point clouds, {count} processes: {rate:.1f} steps a second", flush=True)
    if arguments.json:
        print(json.dumps(figures))


def measure(task: str, mode: str, size: tuple[int, int], episodes: int) -> dict[str, float]:
    """Returns what a step and its observation cost."""
    steps, looks = [], []
    env = make(task, mode, size)
    look = env._look  # a profile looks inside

    def timed_look():
        env._simulation.measure()  # so that what is left is the cameras' share
        begun = time.process_time()
        moment = look()
        looks.append(time.process_time() - begun)
        return moment

    for _, action in expert_steps(env, range(episodes)):
        begun = time.process_time()
        env.step(action)
        steps.append(time.process_time() - begun)
    for _, action in expert_steps(env, range(episodes)):
        env._look = timed_look
        env.step(action)
        env._look = look  # what a reset sees first takes longer
    env.close()
    return {
        "step_ms": 1e3 * float(np.mean(steps)),
        "observation_ms": 1e3 * float(np.mean(looks)),
        "observation_95_ms": 1e3 * float(np.percentile(looks, 95)),
    }


def steps_a_second(task: str, processes: int, seconds: float = 10.0) -> float:
    """Returns how many steps with point clouds several processes make together."""
    context = multiprocessing.get_context("spawn")  # OpenGL does not survive a fork
    with context.Pool(processes) as pool:
        return sum(pool.starmap(_rate, [(task, seconds, seed) for seed in range(processes)]))


def make(task: str, mode: str, size: tuple[int, int]):
    """Makes an environment."""
    from fleet_tools.registration import make_environment

    return make_environment(task=task, obs_mode=mode, camera_size=size)


def _rate(task: str, seconds: float, seed: int) -> float:
    env = make(task, "point_cloud", (320, 240))
    env.reset(seed=seed)  # the first picture takes longer
    count, spent = 0, 0.0
    while spent < seconds:
        seed += 100
        for _, action in expert_steps(env, [seed]):
            begun = time.perf_counter()
            env.step(action)
            spent += time.perf_counter() - begun
            count += 1
    return count / spent


if __name__ == "__main__":
    main()
