"""Measures the cost of camera observations: `python benchmarks/cameras.py`.

Times of steps are processor times, which a busy machine distorts less than wall times; run it on an
idle machine all the same.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from console import print_now
from task_selection import TaskSelection
from timing import cpu_seconds

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.perception.measurement import Measurement
    from fleet_tools.perception.observer import Observer
    from fleet_tools.sim.scene import Scene
    from fleet_tools.sim.simulation import Simulation

_MODES: dict[str, dict[str, Any]] = {
    "state": {"obs_mode": "state"},
    "cloud, 320 x 240": {"obs_mode": "point_cloud", "camera_size": (320, 240)},
    "cloud, 640 x 480": {"obs_mode": "point_cloud", "camera_size": (640, 480)},
    "rendered cloud, 320 x 240": {
        "obs_mode": "point_cloud",
        "camera_size": (320, 240),
        "cloud_source": "vtk",
    },
    "RGB-D, 320 x 240": {"obs_mode": "rgbd", "camera_size": (320, 240)},
    "RGB-D, 640 x 480": {"obs_mode": "rgbd", "camera_size": (640, 480)},
}
"""Keyword arguments of an environment by column of the table."""

_RATE_SECONDS = 10.0


class CamerasOptions(cli.Options):
    """Measures the cost of camera observations.

    For each task and kind of observation: processor time of a control step while the expert acts,
    and of its observation, on one core; of clouds, also the step's time over that with states. Then
    the numbers of steps per second that several processes simulate together, with point clouds of
    the first task.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    episodes: Count = 4
    """Number of episodes of each task, mode and camera size."""
    processes: tuple[Count, ...] = (1, 2, 4)
    """Numbers of processes that simulate together."""


def _measure_all(options: CamerasOptions) -> int:
    tasks = options.tasks.names_or_paths()
    print_now(options, "Milliseconds of one core, mean: step; observation.\n")
    print_now(options, f"| task | {' | '.join(_MODES)} |\n|---|{'---|' * len(_MODES)}")
    steps: list[dict[str, Any]] = []
    for task in tasks:
        state = 0.0
        cells = []
        for kwargs in _MODES.values():
            figures = measure(task, kwargs, options.episodes)
            step, observation = figures["step_ms"], figures["observation_ms"]
            state = state or step
            figures["step_over_state"] = step / state
            steps.append({"task": task, **kwargs, **figures})
            ratio = f" ({step / state:.2f} of state)" if kwargs["obs_mode"] == "point_cloud" else ""
            cells.append(f"{step:.1f}; {observation:.1f}{ratio}")
        print_now(options, f"| {task} | {' | '.join(cells)} |")
    scaling: list[dict[str, Any]] = []
    for count in options.processes:
        rate = steps_per_second(tasks[0], count)
        scaling.append({"task": tasks[0], "processes": count, "steps_per_second": rate})
        processes = f"{count} process{'es' * (count != 1)}"
        print_now(options, f"\n{tasks[0]}, point clouds, {processes}: {rate:.1f} steps per second")
    options.report(
        {"machine": machine_name(), "steps": steps, "scaling": scaling},
        lambda: f"Measured on {machine_name()}.",
    )
    return cli.OK


def measure(task: str, kwargs: dict[str, Any], episodes: int) -> dict[str, float]:
    """Measures the processor time of a control step, and of what cameras add to it."""
    from unittest.mock import patch

    import numpy as np
    from expert_steps import expert_steps

    from fleet_tools.envs.making import make_env
    from fleet_tools.perception.observer import Observer

    steps: list[float] = []
    observations: list[float] = []
    env = make_env(task=task, **kwargs)
    for _, action in expert_steps(env, range(episodes)):
        steps.append(cpu_seconds(lambda action=action: env.step(action)))
    timed = _timed(Observer.measure, observations)
    for _, action in expert_steps(env, range(episodes)):
        # Not during resets, whose first observation takes longer.
        with patch.object(Observer, "measure", timed):
            env.step(action)
    env.close()
    return {
        "step_ms": 1e3 * float(np.mean(steps)),
        "observation_ms": 1e3 * float(np.mean(observations)),
    }


def _timed(
    measure: "Callable[[Observer, Simulation, Scene], Measurement]", seconds: list[float]
) -> "Callable[[Observer, Simulation, Scene], Measurement]":
    """Returns `Observer.measure` with its times added to a list."""

    def timed(observer: "Observer", simulation: "Simulation", scene: "Scene") -> "Measurement":
        simulation.world_state()  # Drake caches its parts, so the time is that of the cameras
        started = time.process_time()
        measurement = measure(observer, simulation, scene)
        seconds.append(time.process_time() - started)
        return measurement

    return timed


def steps_per_second(task: str, processes: int, seconds: float = _RATE_SECONDS) -> float:
    """Measures the steps with point clouds that several processes simulate together."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")  # OpenGL does not survive a fork
    with context.Pool(processes) as pool:
        return sum(pool.starmap(_rate, [(task, seconds, seed) for seed in range(processes)]))


def _rate(task: str, seconds: float, seed: int) -> float:
    from expert_steps import expert_steps

    from fleet_tools.envs.making import make_env

    env = make_env(task=task, obs_mode="point_cloud", camera_size=(320, 240))
    env.reset(seed=seed)  # the first image takes longer
    count, total = 0, 0.0
    while total < seconds:
        seed += 100
        for _, action in expert_steps(env, [seed]):
            started = time.perf_counter()
            env.step(action)
            total += time.perf_counter() - started
            count += 1
    return count / total


PROGRAM = cli.Program(
    "cameras.py", cli.Command(CamerasOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
