"""One episode of an attack, and its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cheats import LOOSENED
from cheats.witness import Witness
from fleet_tools.envs.outcomes import SIMULATION_ERROR
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.evaluation.level_scenes import SceneRules
from fleet_tools.sim.scene import Scene


class Attack(Protocol):
    """A policy that signals its end."""

    @property
    def ended(self) -> bool:
        """Whether it only rests from now on."""
        ...

    def reset(self) -> None:
        """Begins; the environment has begun an episode."""
        ...

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns an action, (6,)."""
        ...


@dataclass(frozen=True)
class Attacked:
    """The result of an episode.

    Attributes:
        seed: Seed of the scene.
        models: Tool and object.
        outcome: Outcome of the episode.
        deed: Whether the object moved as the task asks, by any means: its first predicate holds,
            and any about a marked place.
        old_success: Whether all predicates but `caused_by_part` held for the required time.
        success: Whether the episode was a success.
        done: Whether the deed is done at the end, and `Witness` saw the tool's part do it.
        unmet: Predicates that did not hold at the best moment after the deed.
        false_success: Whether it was a success that `Witness` does not confirm.
        by_part: Largest progress of `caused_by_part`, in [0, 1].
        change: `Witness.change`, by the bodies that touched the object.
        total_reward: Sum of the rewards.
    """

    seed: int
    models: str
    outcome: str
    deed: bool
    old_success: bool
    success: bool
    done: bool
    unmet: tuple[str, ...]
    false_success: bool
    by_part: float
    change: dict[str, float]
    total_reward: float


def attacked_scene(
    env: ToolUseEnv,
    seed: int,
    others: Mapping[str, Any] | None = None,
    rules: SceneRules | None = None,
    *,
    loosened: bool = True,
) -> Scene:
    """Returns the scene of a seed, for cheats in some tasks with joints that turn more easily.

    Args:
        env: Environment of the task.
        seed: The seed.
        others: Fields of the scene for other people's effects on the object.
        rules: Rules of a level of the protocol; None for the nominal level.
        loosened: Whether joints turn more easily.
    """
    scene = (rules or SceneRules()).draw(env.task, seed, env.split)
    factor = LOOSENED.get(env.task.name, 1.0) if loosened else 1.0
    resistance = {joint: factor * value for joint, value in scene.joint_resistance.items()}
    return scene.model_copy(update={"joint_resistance": resistance, **(others or {})})


def run_trial(
    env: ToolUseEnv, attack: Attack, scene: Scene, watch: Callable[[], object] | None = None
) -> Attacked:
    """Runs an episode until it ends, or until the attack has ended and has rested for a while.

    Args:
        env: Environment of the task.
        attack: The attack.
        scene: The scene.
        watch: Called at the start and after every step.
    """
    observation, info = env.reset(options={"scene": scene})
    attack.reset()
    witness = Witness(env)
    unmet: tuple[str, ...] | None = None
    if watch is not None:
        watch()
    deed, old_success, by_part, total_reward = False, False, 0.0, 0.0
    old_held = resting = 0
    over = False
    while not over and resting < env.task.success_steps + 3:
        observation, reward, terminated, truncated, info = env.step(attack.act(observation))
        over = terminated or truncated
        resting = resting + 1 if attack.ended else 0
        total_reward += float(reward)
        if info["outcome"] == SIMULATION_ERROR:
            break
        if watch is not None:
            watch()
        rules = _by_rule(info["verdicts"])
        if rules["deed"] and (unmet is None or len(rules["unmet"]) <= len(unmet)):
            unmet = rules["unmet"]
        deed = deed or rules["deed"]
        old_held = old_held + 1 if rules["old"] else 0
        old_success = old_success or old_held >= env.task.success_steps
        by_part = max(by_part, rules["by_part"])
    witness.stop()
    success = info["outcome"] == "success"
    confirmed = witness.saw_the_part_do_it()
    return Attacked(
        seed=scene.seed,
        models=f"{scene.tool} on {scene.object}",
        outcome=info["outcome"],
        deed=deed,
        old_success=old_success,
        success=success,
        done=confirmed and _by_rule(info["verdicts"])["deed"],
        unmet=unmet or (),
        false_success=success and not confirmed,
        by_part=by_part,
        change={" + ".join(sorted(who)): float(x) for who, x in witness.change.items() if who},
        total_reward=total_reward,
    )


def _by_rule(verdicts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    caused = {name for name in verdicts if name.endswith("caused_by_part")}
    asked = {next(iter(verdicts)), *(name for name in verdicts if name.endswith("over_place"))}
    return {
        "deed": all(verdicts[name]["holds"] for name in asked),
        "old": all(verdict["holds"] for name, verdict in verdicts.items() if name not in caused),
        "by_part": max(verdicts[name]["progress"] for name in caused),
        "unmet": tuple(name for name, verdict in verdicts.items() if not verdict["holds"]),
    }
