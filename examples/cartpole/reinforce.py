"""Merging during learning: agents that learn by REINFORCE and are averaged every so often.

This is the paper's online ablation: five policies on five instances of CartPole, which all continue
from their average after every M episodes each. Weights are exchanged, and no data. There are two
controls: agents that are never averaged (M = None), and one policy that learns from the episodes of
all agents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import gymnasium
import numpy as np
import torch

from fleet_merging.average import average
from fleet_merging.errors import MergeError
from fleet_merging.symmetry.layers import mlp
from fleet_merging.symmetry.table import State, Symmetry

ENV_ID = "CartPole-v1"
SYMMETRY = Symmetry.of(mlp(["0", "2"], ["_state", "h", "_action"]))
"""Table of axes of the policies, for methods that align."""

Merge = Callable[[Sequence[State]], State]
"""Returns the merge of models."""


@dataclass(frozen=True)
class Reinforce:
    """Parameters of REINFORCE (Williams 1992; Sutton 1999).

    Returns to go are normalized within each episode.

    Attributes:
        hidden: Number of units of the policy's hidden layer.
        rate: Learning rate of Adam.
        discount: Discount of rewards per step.
    """

    hidden: int = 64
    rate: float = 1e-2
    discount: float = 0.99


@dataclass(frozen=True)
class LearningResult:
    """Result of learning.

    Attributes:
        policies: Policy of each agent; equal ones if learning ended with a merge.
        returns: Return of each episode of learning, (agents, episodes).
    """

    policies: tuple[State, ...]
    returns: np.ndarray


def learn_apart(
    agents: int = 5,
    episodes: int = 300,
    every: int | None = 10,
    reinforce: Reinforce | None = None,
    seed: int = 0,
    merge: Merge = average,
) -> LearningResult:
    """Lets every agent learn in its own environment, and merges all every so many episodes.

    Agents start with different weights. Optimizers keep their moments when weights are replaced.

    Args:
        agents: Number of agents.
        episodes: Number of episodes of each agent.
        every: Number M of episodes of each agent from one merge to the next; None never merges.
        reinforce: Parameters of learning.
        seed: Seed of everything that is drawn.
        merge: Merges the policies.

    Raises:
        MergeError: A number is below 1.
    """
    _require_positive(agents=agents, episodes=episodes, every=1 if every is None else every)
    reinforce = reinforce or Reinforce()
    learners = [_Agent.make(reinforce, (seed, index)) for index in range(agents)]
    returns = np.zeros((agents, episodes))
    for number in range(episodes):
        for index, agent in enumerate(learners):
            episode = agent.run_episode()
            returns[index, number] = len(episode.actions)
            agent.improve([episode], reinforce.discount)
        if every is not None and (number + 1) % every == 0:
            merged = merge([agent.state() for agent in learners])
            for agent in learners:
                agent.policy.load_state_dict(merged)
    for agent in learners:
        agent.env.close()
    return LearningResult(tuple(agent.state() for agent in learners), returns)


def learn_jointly(
    agents: int = 5, episodes: int = 300, reinforce: Reinforce | None = None, seed: int = 0
) -> LearningResult:
    """Lets one policy learn in all environments, with one step for an episode of each.

    Args:
        agents: Number of environments.
        episodes: Number of episodes in each environment.
        reinforce: Parameters of learning.
        seed: Seed of everything that is drawn.

    Raises:
        MergeError: A number is below 1.
    """
    _require_positive(agents=agents, episodes=episodes)
    reinforce = reinforce or Reinforce()
    actors = [_Agent.make(reinforce, (seed, index)) for index in range(agents)]
    learner = actors[0]
    returns = np.zeros((agents, episodes))
    for number in range(episodes):
        batch = [agent.run_episode(learner.policy) for agent in actors]
        returns[:, number] = [len(episode.actions) for episode in batch]
        learner.improve(batch, reinforce.discount)
    for agent in actors:
        agent.env.close()
    return LearningResult((learner.state(),), returns)


def evaluate(state: State, episodes: int = 20, seed: int = 0) -> float:
    """Returns the mean return of a policy that samples its actions, in episodes of new seeds."""
    hidden = state["0.bias"].numel()
    agent = _Agent.make(Reinforce(hidden=hidden), (seed, 2**20))
    agent.policy.load_state_dict(state)
    mean = float(np.mean([len(agent.run_episode().actions) for _ in range(episodes)]))
    agent.env.close()
    return mean


def advantages(steps: int, discount: float) -> torch.Tensor:
    """Returns the returns to go, (steps,), of a reward of 1 per step; mean 0, deviation 1."""
    to_go = np.cumsum(discount ** np.arange(steps))[::-1]
    centered = to_go - to_go.mean()
    return torch.from_numpy((centered / (to_go.std() + 1e-8)).astype(np.float32))


@dataclass(frozen=True)
class _SampledEpisode:
    """An episode, with a reward of 1 per step.

    Attributes:
        observations: (steps, 4).
        actions: (steps,).
    """

    observations: np.ndarray
    actions: np.ndarray


@dataclass(frozen=True)
class _Agent:
    """A policy, its optimizer, and its own environment."""

    policy: torch.nn.Sequential
    optimizer: torch.optim.Optimizer
    env: gymnasium.Env
    generator: np.random.Generator

    @classmethod
    def make(cls, reinforce: Reinforce, seed: tuple[int, int]) -> Self:
        """Makes an agent with new weights."""
        generator = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**31)))
            policy = torch.nn.Sequential(
                torch.nn.Linear(4, reinforce.hidden),
                torch.nn.Tanh(),
                torch.nn.Linear(reinforce.hidden, 2),
            )
        env = gymnasium.make(ENV_ID, disable_env_checker=True)
        env.reset(seed=int(generator.integers(2**31)))
        optimizer = torch.optim.Adam(policy.parameters(), reinforce.rate)
        return cls(policy, optimizer, env, generator)

    def state(self) -> dict[str, torch.Tensor]:
        """Returns a copy of the policy's state dict."""
        return {name: tensor.clone() for name, tensor in self.policy.state_dict().items()}

    def run_episode(self, policy: torch.nn.Sequential | None = None) -> _SampledEpisode:
        """Runs a policy, the agent's own if None; in NumPy, which is faster for single states."""
        weights = (policy or self.policy).state_dict().values()
        first, bias, second, last = (tensor.numpy() for tensor in weights)
        observations, actions, done = [], [], False
        observation, _ = self.env.reset()
        while not done:
            logits = second @ np.tanh(first @ observation + bias) + last
            right = 1 / (1 + np.exp(logits[0] - logits[1]))
            action = int(self.generator.random() < right)
            observations.append(observation)
            actions.append(action)
            observation, _, terminated, truncated, _ = self.env.step(action)
            done = terminated or truncated
        return _SampledEpisode(np.array(observations, dtype=np.float32), np.array(actions))

    def improve(self, episodes: Sequence[_SampledEpisode], discount: float) -> None:
        """Takes one step along the policy gradient, in which all episodes have equal weights."""
        losses = []
        for episode in episodes:
            logits = self.policy(torch.from_numpy(episode.observations))
            actions = torch.from_numpy(episode.actions)
            log_likelihoods = -torch.nn.functional.cross_entropy(logits, actions, reduction="none")
            losses.append(-(log_likelihoods * advantages(len(episode.actions), discount)).sum())
        self.optimizer.zero_grad()
        (sum(losses, start=torch.zeros(())) / len(losses)).backward()
        self.optimizer.step()


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise MergeError(f"{name} is {number}. Give at least 1.")
