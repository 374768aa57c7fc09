"""Measures the cost of camera observations: `python benchmarks/cameras.py`.

Times of steps are processor times, which a busy machine distorts less than wall times. Still, run
it
on an idle machine.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scaffold import TaskSelection, cpu_seconds, expert_steps, main_of, print_now, report_rows

from fleet_tools.config.values import Count
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

_CLOUD = {"obs_mode": "point_cloud", "camera_size": (320, 240)}
_MODES: dict[str, dict[str, Any]] = {
    "state": {"obs_mode": "state"},
    "cloud, 320 x 240": _CLOUD,
    "cloud, 640 x 480": _CLOUD | {"camera_size": (640, 480)},
    "rendered cloud, 320 x 240": _CLOUD | {"cloud_source": "vtk"},
    "RGB-D, 320 x 240": {"obs_mode": "rgbd", "camera_size": (320, 240)},
    "RGB-D, 640 x 480": {"obs_mode": "rgbd", "camera_size": (640, 480)},
}
"""Keyword arguments of an environment by column of the table."""


class CamerasOptions(cli.Options):
    """Measures the cost of camera observations.

    For each task and kind of observation: processor time of the expert's control steps, and of
    observations, on one core. For clouds, also the step's time relative to states.
    """

    tasks: TaskSelection = TaskSelection()
    episodes: Count = 4
    """Number of episodes of each task, mode and camera size."""


def _measure_all(options: CamerasOptions) -> int:
    print_now(options, "Milliseconds of one core, mean: step; observation.\n")
    report_rows(options, ["task", *_MODES], _rows(options), _cells, machine=machine_name())
    return cli.OK


def _rows(options: CamerasOptions) -> Iterator[dict[str, Any]]:
    for task in options.tasks.names_or_paths():
        names = ("step_ms", "observation_ms", "step_over_state")
        found = measure(task, options.episodes)
        yield {"task": task, **{m: dict(zip(names, of, strict=True)) for m, of in found.items()}}


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield row["task"]
    for mode in _MODES:
        step, observation, ratio = row[mode].values()
        shown = f" ({ratio:.2f} of state)" if "cloud" in mode else ""
        yield f"{step:.1f}; {observation:.1f}{shown}"


def measure(task: str, episodes: int) -> dict[str, list[float]]:
    """Measures control steps, side by side: all environments take each step.

    Args:
        task: Name of a task, or path of a task file.
        episodes: Number of the expert's episodes; one more runs first, and is not counted.

    Returns:
        By column: mean processor times of a step and of its camera images, ms; and the median ratio
        of its time to a step with states.
    """
    envs = {name: EnvSpec.of(task=task, **given).make_tool_use() for name, given in _MODES.items()}
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
    return dict(zip(envs, rows, strict=True))


def _observation_seconds(env: ToolUseEnv) -> float:
    """Returns the processor time of the camera images of the present state."""
    simulation = env.simulation  # a profile looks inside
    assert simulation is not None  # during an episode
    simulation.world_state()  # cached by Drake, so that only the cameras are timed
    return cpu_seconds(lambda: env._observer.measure(simulation, env.scene))


main = main_of(__file__, CamerasOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
