"""What is to be imitated of an episode, as its `info` says: which steps, and which actions.

Training, samples, statistics and exports all ask here.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np
import pydantic

from fleet_tools.config.values import CountOrZero, Number, Value, parse
from fleet_tools.errors import ConfigError, DatasetError

NOISE_STEPS = "noise_steps"
"""Key of the steps with noise in their actions, see `experts.noise_injection`."""
LEARNER_STEPS, EXPERT_ACTIONS = "learner_steps", "expert_actions"
"""Keys of a learner's steps, and of the expert's actions there, see `experts.dagger`."""

_Entry = Annotated[Number, pydantic.Field(ge=-1, le=1)]


class Labels(Value):
    """The steps whose executed actions are not the expert's.

    Attributes:
        noise_steps: Steps that are not to be imitated.
        learner_steps: Steps in which a learner acted.
        expert_actions: The expert's actions in these, which are to be imitated instead.
    """

    noise_steps: tuple[CountOrZero, ...] = ()
    learner_steps: tuple[CountOrZero, ...] = ()
    expert_actions: tuple[tuple[_Entry, _Entry, _Entry, _Entry, _Entry, _Entry], ...] = ()

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        steps = [*self.noise_steps, *self.learner_steps]
        if len(set(steps)) < len(steps):
            raise ValueError("a step is named twice")
        if len(self.learner_steps) != len(self.expert_actions):
            raise ValueError("there is not one action of the expert for each step of the learner")
        return self

    @classmethod
    def of(cls, info: Mapping[str, Any], steps: int) -> Self:
        """Reads an episode's `info`.

        Args:
            info: The `info`; without any of the keys, every step is to be imitated.
            steps: Number of steps of the episode.

        Raises:
            DatasetError: It names steps that the episode does not have, or is not valid.
        """
        given = {name: info[name] for name in cls.model_fields if name in info}
        try:
            labels = parse(cls, given, "An episode's `info`")
        except ConfigError as error:
            raise DatasetError(str(error)) from None
        last = max([*labels.noise_steps, *labels.learner_steps], default=-1)
        if last >= steps:
            raise DatasetError(
                f"An episode's `info` names the step {last}, and the episode has {steps}. Collect "
                "it again."
            )
        return labels

    def imitate(self, steps: int) -> np.ndarray:
        """Returns which steps are to be imitated, (T,) bool.

        Args:
            steps: Number of steps of the episode, T.
        """
        mask = np.ones(steps, bool)
        mask[list(self.noise_steps)] = False
        return mask

    def actions(self, executed: np.ndarray, first: int = 0) -> np.ndarray:
        """Returns the actions to imitate: the expert's where a learner acted, else those executed.

        Where no action is to be imitated, it is the executed one, too.

        Args:
            executed: (t, n), executed actions of consecutive steps.
            first: The first of these steps.

        Returns:
            (t, n), a copy where they differ.

        Raises:
            DatasetError: The expert's actions have another size.
        """
        steps, actions = self.corrections
        within = (steps >= first) & (steps < first + len(executed))
        if not within.any():
            return executed
        if actions.shape[1:] != executed.shape[1:]:
            raise DatasetError(
                f"An episode's `info` has actions of the expert with {actions.shape[1]} entries, "
                f"and the episode has actions with {executed.shape[1]}. Collect it again."
            )
        chosen = executed.copy()
        chosen[steps[within] - first] = actions[within]
        return chosen

    def pieces(self, steps: int, *, of_chunks: bool = False) -> list[tuple[int, int]]:
        """Returns the runs of consecutive steps to imitate, each as its first step and its end.

        Args:
            steps: Number of steps of the episode.
            of_chunks: Whether a run also ends after each step in which a learner acted. What the
                expert does after a learner's action does not follow from its own action there, so
                no run of actions to predict at once, a chunk, may hold both.
        """
        ends = {0, steps, *self.noise_steps, *(step + 1 for step in self.noise_steps)}
        if of_chunks:
            ends |= {step + 1 for step in self.learner_steps}
        imitate = self.imitate(steps)
        return [(first, end) for first, end in pairwise(sorted(ends)) if imitate[first]]

    @cached_property
    def corrections(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps in which a learner acted, ascending, (k,), and the expert's actions, (k, 6)."""
        steps = np.array(self.learner_steps, np.int64)
        order = np.argsort(steps)
        return steps[order], np.array(self.expert_actions, np.float32)[order]
