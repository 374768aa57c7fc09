"""Policies of graded strength in Drake and in MuJoCo: `python benchmarks/two_engines.py`.

Scenes, models, controller, observations and verdicts are the same; time passes in one engine or in
the other (`engines`). Does the order of the policies hold?
"""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scaffold import main_of, table_head, table_row

from fleet_tools.config.values import Count, CountOrZero
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.policies.policy import Policy
    from fleet_tools.sim.scene import Scene
    from fleet_tools.sim.simulation import Simulation

ENGINES: tuple[str, ...] = ("Drake", "MuJoCo, stiff", "MuJoCo, its default")


class TwoEnginesOptions(cli.Options):
    """Runs ten policies in scenes of the nominal level in Drake and in MuJoCo.

    A row for each policy has its successes in each engine. `caused_by_part` is left out of the
    verdict in both, since it is measured by Drake's own steps. The last rows compare each engine
    with Drake: Kendall's tau-b of the ten policies' successes, and of their mean final progress;
    the number of episodes with the same verdict; and at most how far a keypoint of the object moves
    while the hand rests, and its joint beyond the end stop under the expert.

    Exit codes:
    0: it is done.
    2: it cannot begin.
    130: Ctrl-C.
    """

    task: Literal["hammer", "knife"] = "hammer"
    scenes: Count = 2
    """Number of scenes of each split."""
    skip: CountOrZero = 2
    """Number of first scenes of each split that are left out: with the first two, MuJoCo's stiff
    settings were chosen."""
    only_stiff: bool = False
    """Leave out MuJoCo's default stiffness."""


class Graded:
    """An expert whose actions are scaled, late and disturbed.

    Args:
        expert: The expert.
        seed: Seed of the disturbances of each episode.
        noise: Standard deviation of what is added to each entry, 1 being the action's bound.
        scale: Factor of each action.
        delay: Number of steps by which actions are late.
    """

    def __init__(
        self, expert: "Policy", seed: int, noise: float = 0.0, scale: float = 1.0, delay: int = 0
    ) -> None:
        self._expert, self._seed = expert, seed
        self._noise, self._scale, self._delay = noise, scale, delay

    def reset(self) -> None:
        """Begins with the same disturbances as before."""
        self._expert.reset()
        self._generator = np.random.default_rng(self._seed)
        self._waiting = deque([np.zeros(6)] * self._delay)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the next action, (6,)."""
        self._waiting.append(np.asarray(self._expert.act(observation)))
        meant = self._scale * self._waiting.popleft()
        disturbed = meant + self._noise * self._generator.standard_normal(6)
        return np.clip(disturbed, -1.0, 1.0).astype(np.float32)


def policies() -> "dict[str, Callable[[ToolUseEnv, int], Policy]]":
    """Returns the ten policies by name, made of an environment and a seed."""
    from fleet_tools.experts.policy import ExpertPolicy
    from fleet_tools.policies.policy import RandomPolicy, ZeroPolicy

    def graded(**weakness: Any) -> "Callable[[ToolUseEnv, int], Policy]":
        return lambda env, seed: Graded(ExpertPolicy(env), seed, **weakness)

    return {
        "expert": graded(),
        "expert, noise 0.1": graded(noise=0.1),
        "expert, noise 0.2": graded(noise=0.2),
        "expert, noise 0.4": graded(noise=0.4),
        "expert, noise 0.8": graded(noise=0.8),
        "expert, half as fast": graded(scale=0.5),
        "expert, a step late": graded(delay=1),
        "expert, three steps late": graded(delay=3),
        "random": RandomPolicy,
        "zero": lambda env, seed: ZeroPolicy(env),
    }


@dataclass(frozen=True)
class Ended:
    """How an episode ended.

    Attributes:
        success: Whether it succeeded.
        progress: Its last progress.
        moved_m: How far the keypoint of the object that moved most is from where it began, m.
        beyond_m: How far the object's joint was at most beyond its end stop, m; 0 without joints.
    """

    success: bool
    progress: float
    moved_m: float
    beyond_m: float


def run(task: str, scenes: int, skip: int, engine: str) -> dict[str, list[Ended]]:
    """Returns how the episodes of all policies end in one engine, by policy.

    Args:
        task: Name of the task.
        scenes: Number of scenes of each split.
        skip: Number of first scenes of each split that are left out.
        engine: One of `ENGINES`.
    """
    from engines.mujoco_simulation import MujocoSimulation, SoftMujocoSimulation

    from fleet_tools.evaluation.protocol_file import load_protocol
    from fleet_tools.sim.simulation import Simulation

    protocol = load_protocol("v3")
    env = protocol.make_env(task)
    classes = (Simulation, MujocoSimulation, SoftMujocoSimulation)
    env._stage.engine = dict(zip(ENGINES, classes, strict=True))[engine]
    judged = tuple(each for each in env.task.success if each.type != "caused_by_part")
    env.task = env.task.model_copy(update={"success": judged})
    ended: dict[str, list[Ended]] = {name: [] for name in policies()}
    for trial in protocol.trials(task, scenes=skip + scenes):
        if trial.index < skip:
            continue
        scene = protocol.scene(env.task, trial)
        for name, make in policies().items():
            ended[name].append(_ended(env, make(env, trial.seed % 2**32), scene))
    env.close()
    return ended


def _ended(env: "ToolUseEnv", policy: "Policy", scene: "Scene") -> Ended:
    from fleet_tools.envs.outcomes import SUCCESS
    from fleet_tools.envs.success import conjunction
    from fleet_tools.rollouts.rollout import rollout

    env.reset(options={"scene": scene})
    start, beyond = env.world_state().p_W_object, [0.0]

    def watch(simulation: "Simulation") -> None:
        plant, object = simulation.world.plant, simulation.world.object
        q = plant.GetPositions(plant.GetMyContextFromRoot(simulation._root), object)
        joints = map(plant.get_joint, plant.GetJointIndices(object))
        single = [joint for joint in joints if joint.num_positions() == 1]
        if len(single) == q.size:  # nothing is free
            beyond.extend(q - [joint.position_upper_limits()[0] for joint in single])

    with env.watched(watch):
        episode = rollout(env, policy, scene=scene)
    end = env.world_state().p_W_object
    moved = max(float(np.linalg.norm(end[key] - start[key])) for key in start)
    progress = conjunction(env.verdicts().values()).progress
    return Ended(episode.outcome == SUCCESS, progress, moved, float(max(beyond)))


def compared(one: dict[str, list[Ended]], other: dict[str, list[Ended]]) -> dict[str, Any]:
    """Returns how the ends of the same episodes in one engine agree with those in another."""
    from scipy.stats import kendalltau

    def tau(value: Callable[[Ended], float]) -> float:
        means = [[np.mean([*map(value, ends)]) for ends in by.values()] for by in (one, other)]
        found: Any = kendalltau(*means)
        return float(found.statistic)

    pairs = [pair for name in one for pair in zip(one[name], other[name], strict=True)]
    return {
        "tau, successes": tau(lambda end: end.success),
        "tau, progress": tau(lambda end: end.progress),
        "same verdict": sum(a.success == b.success for a, b in pairs),
        "episodes": len(pairs),
    }


def table(task: str, found: dict[str, dict[str, list[Ended]]]) -> str:
    """Returns the table of a task, from the ends of its episodes by engine and policy."""
    lines = [table_head([task, *found])]
    for name in found[ENGINES[0]]:
        ends = [by[name] for by in found.values()]
        lines.append(table_row([name, *(f"{sum(e.success for e in of)}/{len(of)}" for of in ends)]))
    agreement = [compared(found[ENGINES[0]], by) for by in found.values()]
    for name in ("tau, successes", "tau, progress"):
        lines.append(table_row([name, *(f"{each[name]:.2f}" for each in agreement)]))
    same = (f"{each['same verdict']}/{each['episodes']}" for each in agreement)
    lines.append(table_row(["same verdict", *same]))
    rest = [max(end.moved_m for end in by["zero"]) for by in found.values()]
    lines.append(table_row(["object moves by itself", *(f"{1e3 * m:.2f} mm" for m in rest)]))
    stop = [max(end.beyond_m for end in by["expert"]) for by in found.values()]
    if any(stop):
        lines.append(table_row(["joint beyond its end", *(f"{1e3 * m:.2f} mm" for m in stop)]))
    return "\n".join(lines)


def _measure(options: TwoEnginesOptions) -> int:
    engines = ENGINES[:2] if options.only_stiff else ENGINES
    scenes = options.scenes, options.skip
    found = {engine: run(options.task, *scenes, engine) for engine in engines}
    rows = {e: {n: [vars(x) for x in ends] for n, ends in by.items()} for e, by in found.items()}
    options.report({"task": options.task, "episodes": rows}, lambda: table(options.task, found))
    return cli.OK


main = main_of(__file__, TwoEnginesOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
