"""A link between robot and policy that delays, jitters and loses messages, in control steps."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet_tools.policies.policy import Policy, begin


@dataclass(frozen=True)
class Link:
    """How long an observation takes to become an action, and whether it does at all.

    Attributes:
        delay_steps: Least time from an observation to its action, control steps.
        jitter_steps: Largest further time, drawn evenly for each observation, control steps.
        loss: Probability with which an observation, or its action, is lost.
        waits: Whether an observation is sent only when the action of the last one has come;
            otherwise one is sent in every step.
    """

    delay_steps: int = 0
    jitter_steps: int = 0
    loss: float = 0.0
    waits: bool = False


class DelayedPolicy:
    """A policy behind a link, for one episode.

    In a step in which actions arrive, that of the newest observation is executed, and older ones
    are dropped from then on. In other steps the action is zero: the arm stays at its present pose.

    Args:
        policy: The policy.
        link: The link.
        generator: Draws jitter and losses.
    """

    def __init__(self, policy: Policy, link: Link, generator: np.random.Generator) -> None:
        self._policy, self._link, self._generator = policy, link, generator
        self._under_way: dict[int, tuple[int, dict[str, np.ndarray]]] = {}
        self._step = -1

    def reset(self, seed: int = 0) -> None:
        """Forgets the last episode, and what is under way."""
        begin(self._policy, seed)
        self._under_way, self._step = {}, -1

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the action that arrives in this step, (6,), or zeros."""
        self._step += 1
        if not (self._link.waits and self._under_way):
            self._send(dict(observation))
        arrived = [sent for sent, (step, _) in self._under_way.items() if step <= self._step]
        if not arrived:
            return np.zeros(6, np.float32)
        newest = max(arrived)
        _, seen = self._under_way[newest]
        self._under_way = {sent: each for sent, each in self._under_way.items() if sent > newest}
        return self._policy.act(seen)

    def _send(self, observation: dict[str, np.ndarray]) -> None:
        link = self._link
        jitter = int(self._generator.integers(link.jitter_steps + 1))
        if self._generator.random() >= link.loss:
            self._under_way[self._step] = self._step + link.delay_steps + jitter, observation
