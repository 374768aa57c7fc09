"""Measures the speed of simulation, planning and resets: `python benchmarks/speed.py`.

Times are processor times on one core, which a busy machine distorts less than wall times; run it on
an idle machine all the same.
"""

import sys
from typing import Any

from console import print_now
from task_selection import TaskSelection
from timing import cpu_seconds

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

_PROFILED_EPISODES = 4

Figures = dict[str, float]
"""Measured figures by name."""


class SpeedOptions(cli.Options):
    """Measures the speed of simulation, planning and resets, and the parts of a simulation step.

    For each task: real-time factors of whole episodes of the expert, of control steps in free
    motion and of those with contact; the time of a simulation step in contact, with its parts for
    contact geometry, control and attribution, and the ratios of steps with control, and with both,
    to the same step with the same torques but without them; times of planning and of resets.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    episodes: Count = 20
    """Number of episodes of each task."""


def _measure(options: SpeedOptions) -> int:
    tasks = options.tasks.names_or_paths()
    measured: list[dict[str, Any]] = []
    for task in tasks:
        figures = {
            **measure_episodes(task, options.episodes),
            **measure_parts(task, _PROFILED_EPISODES),
            **measure_resets(task),
        }
        measured.append({"task": task, **figures})
        lines = [f"{name:>48}: {value:.2f}" for name, value in figures.items()]
        print_now(options, "\n".join([f"{task}:", *lines]))
    options.report(
        {"machine": machine_name(), "tasks": measured}, lambda: f"\nMeasured on {machine_name()}."
    )
    return cli.OK


def measure_episodes(task: str, episodes: int) -> Figures:
    """Measures real-time factors of the expert's episodes, and the times of planning."""
    import numpy as np
    from expert_steps import expert_steps

    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.sim.simulation import CONTROL_RATE

    env = EnvSpec.of(task=task).make_tool_use()
    free: list[float] = []
    contact: list[float] = []
    planning: dict[int | None, float] = {}  # by the scene's seed
    for expert, action in expert_steps(env, range(episodes)):
        planning.setdefault(env.scene.seed, expert.info["planning_seconds"])
        seconds = cpu_seconds(lambda action=action: env.step(action))
        (contact if env.world_state().contacts else free).append(seconds)
    env.close()
    both = [*free, *contact]
    planning_ms = 1e3 * np.array(list(planning.values()))
    return {
        "real-time factor, whole episodes": len(both) / CONTROL_RATE / sum(both),
        # An object that stands on the table touches it, so there may be no free motion.
        **{
            f"real-time factor, {case}": float(1 / CONTROL_RATE / np.mean(seconds))
            for case, seconds in (("free motion", free), ("contact", contact))
            if seconds
        },
        "episode, mean steps": len(both) / episodes,
        "planning, median ms": float(np.median(planning_ms)),
        "planning, 95% ms": float(np.percentile(planning_ms, 95)),
    }


def measure_parts(task: str, episodes: int) -> Figures:
    """Measures the parts of a simulation step in contact, in microseconds, and the control's."""
    import numpy as np
    from expert_steps import expert_steps
    from pydrake.geometry import HydroelasticContactRepresentation
    from step_cost import measure_steps

    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.sim.simulation import CONTROL_RATE
    from fleet_tools.sim.world import TIME_STEP

    polygons = HydroelasticContactRepresentation.kPolygon
    measurements: list[float] = []
    geometry: list[float] = []
    faces: list[int] = []
    env = EnvSpec.of(task=task).make_tool_use()
    for _, action in expert_steps(env, range(episodes)):
        env.step(action)
        if not env.world_state().contacts:
            continue
        simulation = env.simulation  # a profile looks inside
        assert simulation is not None  # during an episode
        find = simulation.query().ComputeContactSurfacesWithFallback
        measurements.append(cpu_seconds(simulation.world_state))
        geometry.append(cpu_seconds(lambda find=find: find(polygons)))
        surfaces, _ = find(polygons)
        faces.append(sum(surface.num_faces() for surface in surfaces))
    env.close()
    step = measure_steps(task, episodes)
    measurement = float(np.mean(measurements)) * CONTROL_RATE * TIME_STEP
    return {
        "simulation step in contact, us": 1e6 * step.whole,
        "... of which contact geometry, us": 1e6 * float(np.mean(geometry)),
        "... of which control, us": 1e6 * (step.controlled - step.bare),
        "... of which attribution, us": 1e6 * (step.whole - step.controlled),
        "simulation step, with control over without": step.controlled_ratio,
        "... with control and attribution": step.whole_ratio,
        "measurement, share of each simulation step, us": 1e6 * measurement,
        "faces of contact surfaces, mean": float(np.mean(faces)),
    }


def measure_resets(task: str) -> Figures:
    """Measures resets to scenes of the same models, and of others, in milliseconds."""
    import numpy as np

    from fleet_tools.envs.spec import EnvSpec

    env = EnvSpec.of(task=task).make_tool_use()
    env.reset(seed=0)
    scenes = [env.scene]
    for seed in range(1, 12):
        env.reset(seed=seed)
        models = {"tool": env.scene.tool, "object": env.scene.object}
        scenes.append(scenes[0].model_copy(update=models))
    times: dict[str, list[float]] = {"same": [], "other": []}
    for scene in scenes * 2:
        current = (env.scene.tool, env.scene.object)
        kind = "same" if (scene.tool, scene.object) == current else "other"
        reset = lambda scene=scene: env.reset(options={"scene": scene})  # noqa: E731
        times[kind].append(cpu_seconds(reset))
        times["same"].append(cpu_seconds(reset))
    env.close()
    return {
        f"reset, {kind} models, median ms": float(1e3 * np.median(times[kind])) for kind in times
    }


PROGRAM = cli.Program(
    "speed.py", cli.Command(SpeedOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
