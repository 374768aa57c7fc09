"""A Stable-Baselines3 agent learns to use a tool from the dense reward alone.

    python -m examples.reinforcement_learning.sac learn --tool hammer
    python -m examples.reinforcement_learning.sac draw
    python -m fleet_tools.evaluate --policy examples.reinforcement_learning.sac:make_policy \
        --name sac --tool hammer --output results/sac

The first command trains an agent, stores it, and measures its learning curve; the second draws the
curves of all tasks; the third evaluates the agent as any other policy.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from examples.reinforcement_learning.learning_curve import (
    CurvePoint,
    LearningCurve,
    draw,
    measure,
)
from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count, Seed, parse
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.storage.strict_json import loads
from fleet_tools.utils import cli

# Drake and PyTorch are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from stable_baselines3 import SAC

FOLDER = Path("runs/sac")
"""Where agents and curves go, below the folder in which the program runs."""
AGENTS, CURVES, FIGURE = FOLDER / "agents", FOLDER / "curves", FOLDER / "curves.png"
KEYPOINTS = ("tool_keypoints", "object_keypoints")
REWARD_SCALE = 10
"""Factor of rewards, which add up to 2 at most: the agent's networks begin with errors of 0.1."""


class LearnOptions(cli.Options):
    """Trains an agent, stores it, and measures its learning curve in scenes it never learns from.

    Exit codes:
    0: agent and curve are stored.
    2: it cannot begin.
    130: Ctrl-C; the last evaluated agent and the curve so far are stored.
    """

    task: TaskOptions
    steps: Count = 30_000
    """Number of steps of the environment."""
    every: Count = 3_000
    """Number of steps between two evaluations."""
    scenes: Count = 10
    """Number of scenes of each evaluation, always the same ones."""
    seed: Seed = 0
    """Seed of the agent and of the scenes in which it learns."""


class DrawOptions(cli.Options):
    """Draws the stored learning curves of all tasks, beside expert, zero and random.

    Exit codes:
    0: the figure is stored.
    2: there is no curve.
    """


# --- Programs -------------------------------------------------------------------------------


def _learn_and_measure(options: LearnOptions) -> int:
    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.policies.sources import find_policy
    from fleet_tools.sim.splits import VALIDATION

    env = EnvSpec.of(task=options.task.name_or_path(), reward="dense").make_tool_use()
    seeds = VALIDATION[: options.scenes]
    references = {}
    for name in ("expert", "zero", "random"):
        references[name] = measure(env, find_policy(name).make(env, options.seed), seeds)
        if not options.quiet:
            print(f"{name}: {references[name]}", file=sys.stderr)
    curve = LearningCurve(task=env.task.name, seed=options.seed, references=references)
    for folder in (AGENTS, CURVES):
        folder.mkdir(parents=True, exist_ok=True)
    learning = EnvSpec.of(task=options.task.name_or_path(), reward="dense").make_tool_use()
    started = time.process_time()
    for steps, agent in learn(learning, options.steps, options.every, options.seed):
        measured = measure(env, Agent(agent), seeds)
        seconds = round(time.process_time() - started)
        point = CurvePoint(steps=steps, processor_s=seconds, measured=measured)
        curve = curve.model_copy(update={"points": (*curve.points, point)})
        agent.save(agent_path(curve.task))
        with atomic_write(CURVES / f"{curve.task}.json") as aside:
            aside.write_text(curve.to_json() + "\n")
        if not options.quiet:
            print(f"{steps} steps, {seconds} s: {measured}", file=sys.stderr)
    options.report(curve.model_dump(mode="json"), lambda: str(curve))
    return cli.OK


def _draw_all(options: DrawOptions) -> int:
    paths = sorted(CURVES.glob("*.json"))
    if not paths:
        raise ConfigError(f"There is no curve in {CURVES}; `learn` makes them.")
    curves = [parse(LearningCurve, loads(path.read_text()), str(path)) for path in paths]
    draw(curves, FIGURE)
    options.report(
        {"figure": str(FIGURE)}, lambda: "\n\n".join([*map(str, curves), f"figure: {FIGURE}"])
    )
    return cli.OK


# --- Learning -------------------------------------------------------------------------------


def learn(env: gymnasium.Env, steps: int, every: int, seed: int) -> Iterator[tuple[int, "SAC"]]:
    """Trains an agent by soft actor-critic (Haarnoja et al. 2018).

    Args:
        env: Environment with dense rewards.
        steps: Number of its steps.
        every: Number of steps after which the agent is returned once more.
        seed: Seed of the agent and of the scenes.

    Yields:
        Number of steps so far, 0 first and `steps` last, and the agent, which then learns on.
    """
    import torch
    from stable_baselines3 import SAC

    torch.set_num_threads(1)  # networks of this size gain nothing from more
    size = len(observed(env.observation_space.sample()))
    space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    seen = gymnasium.wrappers.TransformObservation(env, observed, space)
    agent = SAC(
        "MlpPolicy",
        gymnasium.wrappers.TransformReward(seen, lambda reward: REWARD_SCALE * float(reward)),
        gamma=0.95,  # a horizon of 20 steps of 1/6 s
        learning_rate=1e-3,
        learning_starts=500,
        ent_coef="auto_0.1",
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
    )
    yield 0, agent
    while agent.num_timesteps < steps:
        count = min(every, steps - agent.num_timesteps)
        agent.learn(count, reset_num_timesteps=False)
        yield agent.num_timesteps, agent


def observed(observation: dict[str, np.ndarray]) -> np.ndarray:
    """Returns keypoints, in decimetres, the rotation of the hand, and the joint positions.

    All are of the order of 1. Keypoints and actions are in the end effector's frame, where what is
    right in one place is right everywhere; the rotation tells where the world's axes are, and the
    joint positions how far the arm can still go.
    """
    keypoints = [10 * observation[name].ravel() for name in KEYPOINTS]
    rotation = observation["end_effector_pose"][:, :3].ravel()
    return np.concatenate([*keypoints, rotation, observation["joint_position"]])


# --- Acting ---------------------------------------------------------------------------------


def agent_path(task: str) -> Path:
    """Returns the file of a task's agent."""
    return AGENTS / f"{task}.zip"


def make_policy(env: gymnasium.Env) -> "Agent":
    """Loads the agent of the environment's task, for `fleet_tools.evaluate --policy`.

    Stable-Baselines3 stores pickles, which may run any code when they are loaded: load only your
    own.
    """
    from stable_baselines3 import SAC

    from fleet_tools.envs.recorded_env import interface_of

    return Agent(SAC.load(agent_path(interface_of(env).task), device="cpu"))


class Agent:
    """A trained agent as a policy of Fleet-Tools."""

    def __init__(self, agent: "SAC") -> None:
        self._agent = agent

    def reset(self) -> None:
        """Does nothing."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the most likely action, (6,)."""
        return self._agent.predict(observed(observation), deterministic=True)[0]


PROGRAM = cli.Program(
    "reinforcement_learning.sac",
    {
        "learn": cli.Command(LearnOptions, _learn_and_measure),
        "draw": cli.Command(DrawOptions, _draw_all),
    },
    description="An agent learns to use a tool from the dense reward alone.",
    launcher="python -m examples.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
