"""A Stable-Baselines3 agent learns to hammer from the dense reward alone.

    python -m examples.reinforcement_learning.sac --steps 10000
    python -m fleet_tools.evaluate --policy examples.reinforcement_learning.sac:make_policy \
        --name sac --tool hammer --output results/sac

The first command trains and stores the agent, and compares it with policies without knowledge; the
second evaluates it as any other policy.
"""

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import gymnasium
import numpy as np
import pydantic
import torch
from scipy.stats import ttest_rel
from stable_baselines3 import SAC

from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.trivial import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.seeds import VALIDATION
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import wilson_interval

ENVIRONMENT = "FleetTools/Hammer-v0"
AGENT = Path(__file__).with_name("agent.zip")
OBSERVED = ("tool_keypoints", "object_keypoints")
DISCOUNT = 0.95
"""Discount per step of 1/6 s, with which the agent's horizon is about twenty steps."""


class SacOptions(cli.Options):
    """Trains an agent, stores it, and compares it with policies without knowledge.

    Exit codes:
    0: the agent is stored and compared.
    2: it cannot begin.
    130: Ctrl-C.
    """

    steps: Count = 10_000
    """Number of steps of the environment."""
    seed: Seed = 0
    """Seed of the agent and its scenes."""
    scenes: Annotated[int, pydantic.Field(ge=2)] = 50
    """Number of scenes in which policies are compared."""


def _learn_and_compare(options: SacOptions) -> int:
    torch.set_num_threads(1)  # networks of this size gain nothing from more
    with contextlib.redirect_stdout(sys.stderr):  # stdout has the comparison alone
        agent = learn(options.steps, options.seed, quiet=options.quiet)
    agent.save(AGENT)
    summary = compare(options.scenes)
    options.report(summary, lambda: as_text(summary))
    return cli.OK


# --- Learning -------------------------------------------------------------------------------


def learn(steps: int, seed: int, quiet: bool = False) -> SAC:
    """Trains an agent by soft actor-critic (Haarnoja et al. 2018)."""
    env = gymnasium.make(ENVIRONMENT, reward="dense")
    size = len(observed(env.observation_space.sample()))
    space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    env = gymnasium.wrappers.TransformObservation(SuccessLasts(env), observed, space)
    agent = SAC(
        "MlpPolicy",
        env,
        gamma=DISCOUNT,
        learning_rate=1e-3,
        learning_starts=1000,
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
        verbose=0 if quiet else 1,
    )
    agent.learn(steps, log_interval=10)
    env.close()
    return agent


def observed(observation: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the keypoints alone, (15,), in decimetres, so that they are of the order of 1.

    They and the actions are in the end effector's frame, where hammering is the same everywhere.
    """
    return 10 * np.concatenate([observation[name].ravel() for name in OBSERVED])


class SuccessLasts(gymnasium.Wrapper):
    """Rewards success like infinitely many further steps of success: 1 in each, discounted.

    The dense reward is at most 1 in each step, and success ends the episode. Without this, the
    return of an agent that stays close to success would be higher.
    """

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Runs one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward)
        if terminated:
            reward /= 1 - DISCOUNT
        return observation, reward, terminated, truncated, info


# --- Acting ---------------------------------------------------------------------------------


def make_policy(env: gymnasium.Env) -> "Agent":
    """Loads the agent, for `fleet_tools.evaluate --policy module:make_policy`.

    Stable-Baselines3 stores pickles, which may run any code when they are loaded: load only your
    own.
    """
    return Agent(SAC.load(AGENT, device="cpu"))


class Agent:
    """A trained agent as a policy of Fleet-Tools."""

    def __init__(self, agent: SAC) -> None:
        self._agent = agent

    def reset(self) -> None:
        """Does nothing."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the most likely action, (6,)."""
        return self._agent.predict(observed(observation), deterministic=True)[0]


# --- Comparison -----------------------------------------------------------------------------


def compare(scenes: int) -> dict[str, Any]:
    """Compares the stored agent with policies without knowledge, in new scenes.

    Args:
        scenes: Number of scenes, the same ones for all.

    Returns:
        Results by policy, and 95% intervals of the agent's mean return less that of each other.
    """
    env = gymnasium.make(ENVIRONMENT, reward="dense")
    policies = {"agent": make_policy(env), "random": RandomPolicy(env), "zero": ZeroPolicy(env)}
    results = {name: results_in(env, policy, scenes) for name, policy in policies.items()}
    env.close()
    summary: dict[str, Any] = {"scenes": scenes, "policies": {}, "agent_less": {}}
    for name, (returns, success) in results.items():
        successes = int(success.sum())
        summary["policies"][name] = {
            "mean_return": float(returns.mean()),
            "successes": successes,
            "interval_95": wilson_interval(successes, scenes),
        }
    for name in ("random", "zero"):
        test = cast(Any, ttest_rel(results["agent"][0], results[name][0]))
        summary["agent_less"][name] = [float(end) for end in test.confidence_interval(0.95)]
    return summary


def as_text(summary: dict[str, Any]) -> str:
    """Returns a comparison as lines of text."""
    lines = []
    for name, result in summary["policies"].items():
        low, high = result["interval_95"]
        lines.append(
            f"{name}: return {result['mean_return']:.1f}, success in {result['successes']} of "
            f"{summary['scenes']} scenes (95% interval {low:.1%} to {high:.1%})"
        )
    for name, (low, high) in summary["agent_less"].items():
        lines.append(f"agent's return less {name}'s: 95% interval {low:.1f} to {high:.1f}")
    return "\n".join(lines)


def results_in(env: gymnasium.Env, policy: Policy, scenes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a policy's returns, and its success, (N,) each, in scenes unseen in training.

    A return is the sum of the dense rewards; after success, each remaining step counts as 1.
    """
    episodes = [rollout(env, policy, seed=seed) for seed in VALIDATION[:scenes]]
    limit = unwrap(env).task.max_episode_steps
    success = np.array([episode.outcome == SUCCESS for episode in episodes])
    remaining = np.array([limit - len(episode) for episode in episodes])
    returns = np.array([episode.rewards.sum() for episode in episodes]) + success * remaining
    return returns, success


PROGRAM = cli.Program(
    "reinforcement_learning.sac",
    cli.Command(SacOptions, _learn_and_compare),
    launcher="python -m examples.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
