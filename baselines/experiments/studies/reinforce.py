"""Merging while learning: agents that learn apart by REINFORCE and are averaged now and then.

The paper's online ablation: five policies on five instances of CartPole; after every M episodes of
each, all continue from the average. Weights travel, data do not. Two controls: agents that are
never averaged (M = None), and one policy that learns from everyone's episodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch

from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.symmetry.layers import mlp
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

ENVIRONMENT = "CartPole-v1"
SYMMETRY = Symmetry.of(mlp(["0", "2"], ["_state", "h", "_action"]))
"""Of the policies, for methods that align."""

Average = Callable[[Sequence[State]], State]


@dataclass(frozen=True)
class Reinforce:
    """REINFORCE with returns to go, normalized within an episode (Williams 1992; Sutton 1999).

    Attributes:
        hidden: Units of the policy's one hidden layer.
        rate: Adam's step size.
        discount: Of rewards, a step.
    """

    hidden: int = 64
    rate: float = 1e-2
    discount: float = 0.99


@dataclass(frozen=True)
class Learned:
    """What came of learning.

    Attributes:
        policies: Each agent's; equal ones where the last thing that happened was an average.
        returns: Of each episode while learning, shape (agents, episodes).
    """

    policies: tuple[State, ...]
    returns: np.ndarray


def learn_apart(
    agents: int = 5,
    episodes: int = 300,
    every: int | None = 10,
    reinforce: Reinforce | None = None,
    seed: int = 0,
    merge: Average = average,
) -> Learned:
    """Every agent learns on an instance of its own, and all are merged now and then.

    They begin with different weights. An optimizer keeps its moments when weights are replaced.

    Args:
        agents: How many.
        episodes: Of each.
        every: M, after how many episodes of each they are merged; never if None.
        reinforce: How each learns.
        seed: Of everything.
        merge: Returns one model of many.

    Raises:
        FleetError: A number is below 1.
    """
    _require_positive(agents=agents, episodes=episodes, every=1 if every is None else every)
    reinforce = reinforce or Reinforce()
    everyone = [_Agent.new(reinforce, (seed, at)) for at in range(agents)]
    returns = np.zeros((agents, episodes))
    for episode in range(episodes):
        for at, agent in enumerate(everyone):
            batch = agent.episode()
            returns[at, episode] = len(batch.actions)
            agent.improve([batch], reinforce.discount)
        if every is not None and (episode + 1) % every == 0:
            merged = merge([agent.state() for agent in everyone])
            for agent in everyone:
                agent.policy.load_state_dict(merged)
    for agent in everyone:
        agent.environment.close()
    return Learned(tuple(agent.state() for agent in everyone), returns)


def learn_jointly(
    agents: int = 5, episodes: int = 300, reinforce: Reinforce | None = None, seed: int = 0
) -> Learned:
    """One policy learns from everyone's episodes: one step for each round of them.

    Args:
        agents: Instances of the environment.
        episodes: On each.
        reinforce: How it learns.
        seed: Of everything.

    Raises:
        FleetError: A number is below 1.
    """
    _require_positive(agents=agents, episodes=episodes)
    reinforce = reinforce or Reinforce()
    everyone = [_Agent.new(reinforce, (seed, at)) for at in range(agents)]
    learner = everyone[0]
    returns = np.zeros((agents, episodes))
    for episode in range(episodes):
        batches = [agent.episode(learner.policy) for agent in everyone]
        returns[:, episode] = [len(batch.actions) for batch in batches]
        learner.improve(batches, reinforce.discount)
    for agent in everyone:
        agent.environment.close()
    return Learned((learner.state(),), returns)


def evaluate(state: State, episodes: int = 20, seed: int = 0) -> float:
    """The mean return of a policy that draws its actions, in episodes not seen in learning."""
    hidden = state["0.bias"].numel()
    agent = _Agent.new(Reinforce(hidden=hidden), (seed, 2**20))
    agent.policy.load_state_dict(state)
    mean = float(np.mean([len(agent.episode().actions) for _ in range(episodes)]))
    agent.environment.close()
    return mean


@dataclass(frozen=True)
class _Episode:
    """Observations, shape (steps, 4), and actions, shape (steps,); each step's reward is 1."""

    observations: np.ndarray
    actions: np.ndarray


@dataclass(frozen=True)
class _Agent:
    """A policy, its optimizer, and an environment of its own."""

    policy: torch.nn.Sequential
    optimizer: torch.optim.Optimizer
    environment: gymnasium.Env
    generator: np.random.Generator

    @classmethod
    def new(cls, reinforce: Reinforce, seed: tuple[int, int]) -> "_Agent":
        generator = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**31)))
            policy = torch.nn.Sequential(
                torch.nn.Linear(4, reinforce.hidden),
                torch.nn.Tanh(),
                torch.nn.Linear(reinforce.hidden, 2),
            )
        environment = gymnasium.make(ENVIRONMENT, disable_env_checker=True)
        environment.reset(seed=int(generator.integers(2**31)))
        optimizer = torch.optim.Adam(policy.parameters(), reinforce.rate)
        return cls(policy, optimizer, environment, generator)

    def state(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.policy.state_dict().items()}

    def episode(self, policy: torch.nn.Sequential | None = None) -> _Episode:
        """Runs a policy, its own if None; in NumPy, which is quicker for one small state."""
        weights = (policy or self.policy).state_dict().values()
        first, bias, second, last = (tensor.numpy() for tensor in weights)
        observations, actions, over = [], [], False
        observation, _ = self.environment.reset()
        while not over:
            logits = second @ np.tanh(first @ observation + bias) + last
            right = 1 / (1 + np.exp(logits[0] - logits[1]))
            action = int(self.generator.random() < right)
            observations.append(observation)
            actions.append(action)
            observation, _, terminated, truncated, _ = self.environment.step(action)
            over = terminated or truncated
        return _Episode(np.array(observations, dtype=np.float32), np.array(actions))

    def improve(self, episodes: Sequence[_Episode], discount: float) -> None:
        """One step up the policy gradient, each episode weighing the same."""
        losses = []
        for episode in episodes:
            logits = self.policy(torch.from_numpy(episode.observations))
            actions = torch.from_numpy(episode.actions)
            chosen = -torch.nn.functional.cross_entropy(logits, actions, reduction="none")
            losses.append(-(chosen * advantages(len(episode.actions), discount)).sum())
        self.optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        self.optimizer.step()


def advantages(steps: int, discount: float) -> torch.Tensor:
    """Returns to go of one reward a step, with mean 0 and standard deviation 1; shape (steps,)."""
    to_go = np.cumsum(discount ** np.arange(steps))[::-1]
    centred = to_go - to_go.mean()
    return torch.from_numpy((centred / (to_go.std() + 1e-8)).astype(np.float32))


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise FleetError(f"{name} is {number}. Give at least 1.")
