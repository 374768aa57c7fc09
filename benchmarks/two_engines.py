"""Policies of graded strength in Drake and in MuJoCo: `python benchmarks/two_engines.py`.

Scenes, models, controller, observations and verdicts are the same; time passes in one engine or in
the other (`engines`). Does the order of the policies hold?
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from console import print_now, table_head, table_row

from fleet_tools.config.values import Count
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.policies.policy import Policy

ENGINES: tuple[str, ...] = ("Drake", "MuJoCo, stiff", "MuJoCo, its default")


class TwoEnginesOptions(cli.Options):
    """Runs ten policies in scenes of the nominal level in Drake and in MuJoCo.

    A row for each policy has its successes in each engine. `caused_by_part` is left out of the
    verdict in both, since it is measured by Drake's own steps. The last rows compare each engine
    with Drake: Kendall's tau-b of the ten policies' successes, and of their mean final progress;
    the number of episodes with the same verdict; and how far a keypoint of the object moves while
    the hand rests, and the joint of the object moves beyond its end stop.

    Exit codes:
    0: it is done.
    2: it cannot begin.
    130: Ctrl-C.
    """

    task: Literal["hammer", "knife"] = "hammer"
    scenes: Count = 2
    """Number of first scenes of each split."""


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
        beyond_m: How far the object's joint was beyond its end stop after a control step, m.
    """

    success: bool
    progress: float
    moved_m: float
    beyond_m: float


def run(task: str, scenes: int, engine: str) -> dict[str, list[Ended]]:
    """Returns the ends of the episodes of all policies in one engine.

    Args:
        task: Name of the task.
        scenes: Number of first scenes of each split.
        engine: One of `ENGINES`.
    """
    from engines.mujoco_simulation import MujocoSimulation, SoftMujocoSimulation

    from fleet_tools.envs.outcomes import SUCCESS
    from fleet_tools.envs.success import conjunction
    from fleet_tools.evaluation.protocol_file import load_protocol
    from fleet_tools.rollouts.rollout import rollout
    from fleet_tools.sim.simulation import Simulation

    protocol = load_protocol("v3")
    env = protocol.make_env(task)
    classes = (Simulation, MujocoSimulation, SoftMujocoSimulation)
    env._stage.engine = dict(zip(ENGINES, classes, strict=True))[engine]
    judged = tuple(each for each in env.task.success if each.type != "caused_by_part")
    env.task = env.task.model_copy(update={"success": judged})
    ended: dict[str, list[Ended]] = {name: [] for name in policies()}
    for trial in protocol.trials(task, scenes=scenes):
        scene = protocol.scene(env.task, trial)
        for name, make in policies().items():
            env.reset(options={"scene": scene})
            start = env.world_state().p_W_object
            watch = _Watch(make(env, trial.seed % 2**32), env)
            episode = rollout(env, watch, scene=scene)
            end = env.world_state().p_W_object
            ended[name].append(
                Ended(
                    episode.outcome == SUCCESS,
                    conjunction(env.verdicts().values()).progress,
                    max(float(np.linalg.norm(end[key] - start[key])) for key in start),
                    watch.beyond(),
                )
            )
    env.close()
    return ended


class _Watch:
    """Acts as a policy, and notes the joints of the object."""

    def __init__(self, policy: "Policy", env: "ToolUseEnv") -> None:
        self._policy, self._env = policy, env

    def reset(self) -> None:
        self._largest: dict[str, float] = {}
        self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        self._note()
        return self._policy.act(observation)

    def _note(self) -> None:
        for name, q in self._env.world_state().object_joints.items():
            self._largest[name] = max(q, self._largest.get(name, q))

    def beyond(self) -> float:
        """Returns how far a joint was beyond its upper limit, m."""
        self._note()
        plant, object = self._env.simulation.world.plant, self._env.simulation.world.object
        limits = {
            name: plant.GetJointByName(name, object).position_upper_limits()[0]
            for name in self._largest
        }
        return max([0.0, *(q - limits[name] for name, q in self._largest.items())])


def compared(one: dict[str, list[Ended]], other: dict[str, list[Ended]]) -> dict[str, Any]:
    """Returns how the ends of the same episodes in one engine agree with those in another."""
    from scipy.stats import kendalltau

    def tau(value: Callable[[Ended], float]) -> float:
        means = [
            [np.mean([value(e) for e in ends]) for ends in each.values()] for each in (one, other)
        ]
        found: Any = kendalltau(*means)
        return float(found.statistic)

    pairs = [pair for name in one for pair in zip(one[name], other[name], strict=True)]
    return {
        "tau, successes": tau(lambda end: end.success),
        "tau, progress": tau(lambda end: end.progress),
        "same verdict": sum(a.success == b.success for a, b in pairs),
        "episodes": len(pairs),
    }


def _measure(options: TwoEnginesOptions) -> int:
    found = {engine: run(options.task, options.scenes, engine) for engine in ENGINES}
    print_now(options, table_head([options.task, *ENGINES]))
    for name in policies():
        ends = [found[engine][name] for engine in ENGINES]
        print_now(options, _row(name, [f"{sum(e.success for e in of)}/{len(of)}" for of in ends]))
    agreement = {engine: compared(found["Drake"], found[engine]) for engine in ENGINES}
    for name in ("tau, successes", "tau, progress"):
        print_now(options, _row(name, [f"{agreement[e][name]:.2f}" for e in ENGINES]))
    same = [f"{agreement[e]['same verdict']}/{agreement[e]['episodes']}" for e in ENGINES]
    print_now(options, _row("same verdict", same))
    contact = {
        "object moves by itself, largest": lambda e: max(x.moved_m for x in found[e]["zero"]),
        "beyond the end stop, largest": lambda e: max(x.beyond_m for x in found[e]["expert"]),
    }
    for name, largest in contact.items():
        print_now(options, _row(name, [f"{1e3 * largest(e):.2f} mm" for e in ENGINES]))
    rows = {e: {n: [vars(x) for x in ends] for n, ends in found[e].items()} for e in ENGINES}
    if options.json_output:
        options.report({"agreement": agreement, "episodes": rows}, str)
    return cli.OK


def _row(name: str, cells: Sequence[str]) -> str:
    return table_row([name, *cells])


PROGRAM = cli.Program(
    "two_engines.py", cli.Command(TwoEnginesOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
