"""A Stable-Baselines3 agent learns to hammer from the dense reward alone.

    python -m examples.reinforcement_learning.sac --steps 10000
    python -m fleet_tools.evaluate --policy examples.reinforcement_learning.sac:make_policy \
        --name sac --tool hammer --output results/sac

The first command trains and stores the agent, and compares it with policies that know nothing; the
second scores it as any other policy.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from scipy.stats import ttest_rel
from stable_baselines3 import SAC

import fleet_tools  # noqa: F401  registers the environments
from fleet_tools.policies.trivial import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.episode import Policy, rollout
from fleet_tools.sim.seeds import VALIDATION
from fleet_tools.utils.statistics import wilson_interval

ENVIRONMENT = "FleetTools/Hammer-v0"
AGENT = Path(__file__).with_name("agent.zip")
SEES = ("tool_keypoints", "object_keypoints")
DISCOUNT = 0.95  # per step of 1/6 s: the agent looks about twenty ahead


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of the environment (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the agent and its scenes (0)")
    parser.add_argument("--scenes", type=int, default=50, help="to compare policies in (50)")
    given = parser.parse_args()
    torch.set_num_threads(1)  # networks this small gain nothing by more
    learn(given.steps, given.seed).save(AGENT)
    compare(given.scenes)


# --- Learning -------------------------------------------------------------------------------


def learn(steps: int, seed: int) -> SAC:
    """Trains an agent by soft actor-critic (Haarnoja et al. 2018)."""
    env = gym.make(ENVIRONMENT, reward="dense")
    size = len(seen(env.observation_space.sample()))
    space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    env = gym.wrappers.TransformObservation(SuccessLasts(env), seen, space)
    agent = SAC(
        "MlpPolicy",
        env,
        gamma=DISCOUNT,
        learning_rate=1e-3,
        learning_starts=1000,
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
        verbose=1,
    )
    agent.learn(steps, log_interval=10)
    env.close()
    return agent


def seen(observation: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the keypoints alone, (15,), in decimetres, so that they are about as large as 1.

    They and the actions are in the end effector's frame, where hammering is the same everywhere.
    """
    return 10 * np.concatenate([observation[name].ravel() for name in SEES])


class SuccessLasts(gym.Wrapper):
    """Pays for success what staying successful forever would: 1 in every step, discounted.

    The dense reward is at most 1 in each step, and success ends the episode. To an agent that
    adds rewards up, hovering close to success would else be worth more.
    """

    def step(self, action: np.ndarray) -> tuple:
        """Runs one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated:
            reward /= 1 - DISCOUNT
        return observation, reward, terminated, truncated, info


# --- Acting ---------------------------------------------------------------------------------


def make_policy(env: gym.Env) -> "Agent":
    """Loads the agent, for `fleet_tools.evaluate --policy module:make_policy`.

    Stable-Baselines3 stores pickles, which may do anything when they are loaded: load your own.
    """
    return Agent(SAC.load(AGENT, device="cpu"))


class Agent:
    """A trained agent behind Fleet-Tools' interface of policies."""

    def __init__(self, agent: SAC) -> None:
        self._agent = agent

    def reset(self) -> None:
        """Has nothing to forget."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the most likely action, (6,)."""
        return self._agent.predict(seen(observation), deterministic=True)[0]


# --- Comparing ------------------------------------------------------------------------------


def compare(scenes: int) -> None:
    """Prints how the stored agent does, and policies that know nothing, in the same new scenes."""
    env = gym.make(ENVIRONMENT, reward="dense")
    policies = {"agent": make_policy(env), "random": RandomPolicy(env), "zero": ZeroPolicy(env)}
    results = {name: results_in(env, policy, scenes) for name, policy in policies.items()}
    for name, (returns, solved) in results.items():
        low, high = wilson_interval(int(solved.sum()), scenes)
        print(
            f"{name}: return {returns.mean():.1f}, solves {solved.sum()} of {scenes} scenes "
            f"(95% interval {low:.1%} to {high:.1%})"
        )
    for name in ("random", "zero"):
        better = ttest_rel(results["agent"][0], results[name][0]).confidence_interval(0.95)
        print(f"agent's return less {name}'s: 95% interval {better.low:.1f} to {better.high:.1f}")


def results_in(env: gym.Env, policy: Policy, scenes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns of a policy, and whether it succeeded, (N,) each, in scenes unseen in training.

    A return is the sum of the dense rewards; after success, each step that is left counts as 1.
    """
    episodes = [rollout(env, policy, seed=seed) for seed in VALIDATION[:scenes]]
    solved = np.array([episode.succeeded for episode in episodes])
    left = np.array([env.unwrapped.task.max_episode_steps - len(episode) for episode in episodes])
    return np.array([episode.rewards.sum() for episode in episodes]) + solved * left, solved


if __name__ == "__main__":
    main()
