"""How fast the pieces are, and where the time goes, on one core: `python benchmarks/speed.py`.

For each task: real-time factors of whole episodes of the expert, of steps in free motion and of
steps in which something touches; how a step's time divides among contact geometry, controller,
measuring and the rest (solver and kinematics); what planning and resets cost. Processor seconds
are reported, so that a busy machine distorts less; run it on an idle one all the same.
"""

import argparse
import json
import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np

from fleet_tools.utils.machine import machine_name


def main() -> None:
    """Runs the program."""
    from fleet_tools.config.tasks import task_names

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tool", default="all", help="a task of the package, or all (the default)")
    which.add_argument("--task", help="the path of a task file of your own")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    machine = machine_name()
    if not arguments.json:
        print(f"On {machine}.")
    given = arguments.task or arguments.tool
    for task in task_names() if given == "all" else [given]:
        figures = {**_episodes(task, arguments.episodes), **_profile(task), **_resets(task)}
        if arguments.json:
            print(json.dumps({"task": task, "machine": machine, **figures}), flush=True)
        else:
            print(f"\n{task}")
            print("\n".join(f"{name:>48}: {value:.1f}" for name, value in figures.items()))


def _make(task: str):
    from fleet_tools.registration import make_environment

    return make_environment(task=task)


def expert_steps(env, seeds):
    """Runs the expert's episodes, and yields its next action before every step."""
    from fleet_tools.experts.policy import ExpertPolicy

    for seed in seeds:
        env.reset(seed=seed)
        expert = ExpertPolicy(env)
        expert.reset()
        while env.get_state().outcome == "running":
            yield expert, expert.act(None)


def _episodes(task: str, episodes: int) -> dict[str, float]:
    """The real-time factor that a user sees."""
    from fleet_tools.sim.simulation import CONTROL_RATE

    env = _make(task)
    free, touching, planning = [], [], {}
    for expert, action in expert_steps(env, range(episodes)):
        planning.setdefault(env.scene.seed, sum(expert.plan.seconds.values()))
        seconds = _seconds(lambda action=action: env.step(action))
        (touching if env.world_state().contacts else free).append(seconds)
    env.close()
    both = [*free, *touching]
    return {
        "real-time factor, whole episodes": len(both) / CONTROL_RATE / sum(both),
        # An object that stands on the table touches it, so there may be no free motion.
        **{
            f"real-time factor, {when}": 1 / CONTROL_RATE / np.mean(seconds)
            for when, seconds in (("free motion", free), ("something touches", touching))
            if seconds
        },
        "episode, mean steps": len(both) / episodes,
        "planning, median ms": 1e3 * np.median(list(planning.values())),
        "planning, 95% ms": 1e3 * np.percentile(list(planning.values()), 95),
    }


def _profile(task: str, episodes: int = 4) -> dict[str, float]:
    """How one step of the dynamics divides, where something touches, in microseconds."""
    from pydrake.geometry import HydroelasticContactRepresentation

    from fleet_tools.robot import controller
    from fleet_tools.sim.simulation import CONTROL_RATE
    from fleet_tools.sim.world import TIME_STEP

    original, spent = controller.OperationalSpaceController._calc_actuation, []

    def timed(self, context, output):
        spent.append(_seconds(lambda: original(self, context, output)))

    polygons = HydroelasticContactRepresentation.kPolygon
    whole, measuring, geometry, faces = [], [], [], []
    # Drake binds the method when the controller is made.
    with patch.object(controller.OperationalSpaceController, "_calc_actuation", timed):
        env = _make(task)
        for _, action in expert_steps(env, range(episodes)):
            begun = _seconds(lambda action=action: env.step(action))
            if not env.world_state().contacts:
                continue
            simulation = env._simulation  # a profile looks inside
            scene_graph = simulation.world.scene_graph
            query = scene_graph.get_query_output_port().Eval(
                scene_graph.GetMyContextFromRoot(simulation._root)
            )
            whole.append(begun)
            measuring.append(_seconds(simulation.measure))
            find = query.ComputeContactSurfacesWithFallback
            geometry.append(_seconds(lambda find=find: find(polygons)))
            surfaces, _ = find(polygons)
            faces.append(sum(surface.num_faces() for surface in surfaces))
        env.close()
    steps = 1 / CONTROL_RATE / TIME_STEP
    parts = {
        "contact geometry": np.mean(geometry),
        "controller": np.mean(spent),
        "measuring and observing": np.mean(measuring) / steps,
    }
    total = np.mean(whole) / steps
    parts["the rest: solver, kinematics"] = total - sum(parts.values())
    return {
        "a step of the dynamics in contact, us": 1e6 * total,
        **{f"... {name}, us": 1e6 * seconds for name, seconds in parts.items()},
        "faces of contact surfaces, mean": np.mean(faces),
    }


def _resets(task: str) -> dict[str, float]:
    """What it costs to begin an episode: with the models that are there, and with others."""
    env = _make(task)
    env.reset(seed=0)
    scenes = [env.scene]
    for seed in range(1, 12):
        env.reset(seed=seed)
        models = {"tool": env.scene.tool, "object": env.scene.object}
        scenes.append(scenes[0].model_copy(update=models))
    kinds = {"reuse": [], "rebuild": []}
    for scene in scenes * 2:
        current = (env.scene.tool, env.scene.object)
        kind = "reuse" if (scene.tool, scene.object) == current else "rebuild"
        reset = lambda scene=scene: env.reset(options={"scene": scene})  # noqa: E731
        kinds[kind].append(_seconds(reset))
        kinds["reuse"].append(_seconds(reset))
    env.close()
    return {f"reset with {kind}, median ms": 1e3 * np.median(kinds[kind]) for kind in kinds}


def _seconds(work: Callable) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
