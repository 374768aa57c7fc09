"""Measures the cost of camera observations: `python benchmarks/cameras.py`.

Times of steps are processor times, which a busy machine distorts less than wall times; run it on an
idle machine all the same.
"""

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from scaffold import (
    TaskSelection,
    cpu_seconds,
    expert_steps,
    main_of,
    print_now,
    table_head,
    table_row,
)

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv

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
    print_now(options, table_head(["task", *_MODES]))
    steps: list[dict[str, Any]] = []
    for task in tasks:
        cells = []
        for name, (step, observation, ratio) in measure(task, options.episodes).items():
            steps.append(
                {
                    "task": task,
                    **_MODES[name],
                    "step_ms": step,
                    "observation_ms": observation,
                    "step_over_state": ratio,
                }
            )
            shown = f" ({ratio:.2f} of state)" if "cloud" in name else ""
            cells.append(f"{step:.1f}; {observation:.1f}{shown}")
        print_now(options, table_row([task, *cells]))
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


def measure(task: str, episodes: int) -> dict[str, tuple[float, float, float]]:
    """Measures control steps, side by side: in every step, all environments do the same.

    Args:
        task: Name of a task, or path of a task file.
        episodes: Number of the expert's episodes; another one before them is not counted.

    Returns:
        By column: mean processor time of a step and of what cameras add to it, ms, and the
        median over steps of its time over that with states.
    """
    import numpy as np

    from fleet_tools.envs.spec import EnvSpec

    envs = {
        name: EnvSpec.of(task=task, **kwargs).make_tool_use() for name, kwargs in _MODES.items()
    }
    first, *others = envs.values()
    seconds: list[list[float]] = []
    present = warm = None
    for expert, action in expert_steps(first, range(episodes + 1)):
        if expert is not present:
            present, warm = expert, warm or expert
            for env in others:
                env.reset(options={"scene": first.scene})
        steps = [cpu_seconds(partial(env.step, action)) for env in envs.values()]
        views = [_observation_seconds(env) for env in envs.values()]
        if expert is not warm:
            seconds.append([*steps, *views])
    for env in envs.values():
        env.close()
    step, view = np.split(1e3 * np.array(seconds), 2, axis=1)
    ratios = np.median(step / step[:, :1], axis=0)
    rows = np.column_stack([step.mean(axis=0), view.mean(axis=0), ratios]).tolist()
    return {name: (row[0], row[1], row[2]) for name, row in zip(envs, rows, strict=True)}


def _observation_seconds(env: "ToolUseEnv") -> float:
    """Returns the processor time of what cameras see of the present state."""
    simulation = env.simulation  # a profile looks inside
    assert simulation is not None  # during an episode
    simulation.world_state()  # Drake caches its parts, so the time is that of the cameras
    return cpu_seconds(lambda: env._observer.measure(simulation, env.scene))


def steps_per_second(task: str, processes: int, seconds: float = _RATE_SECONDS) -> float:
    """Measures the steps with point clouds that several processes simulate together."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")  # OpenGL does not survive a fork
    with context.Pool(processes) as pool:
        return sum(pool.starmap(_rate, [(task, seconds, seed) for seed in range(processes)]))


def _rate(task: str, seconds: float, seed: int) -> float:

    from fleet_tools.envs.spec import EnvSpec

    env = EnvSpec.of(task=task, obs_mode="point_cloud", camera_size=(320, 240)).make_tool_use()
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


main = main_of(__file__, CamerasOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
