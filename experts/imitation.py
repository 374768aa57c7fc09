"""What is to be imitated of an episode, as its `info` says."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic

from fleet_tools.config.values import CountOrZero, Number, Value, parse
from fleet_tools.errors import ConfigError, DatasetError

NOISE_STEPS = "noise_steps"
"""Key of the steps with noise in their actions, see `noise_injection`."""
LEARNER_STEPS, EXPERT_ACTIONS = "learner_steps", "expert_actions"
"""Keys of the steps in which a learner acted, and of the expert's actions there, see `dagger`."""

_FORMER_KEY = "disturbed"  # of noise steps, in datasets of schema version 1
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
        former = {NOISE_STEPS: info[_FORMER_KEY]} if _FORMER_KEY in info else {}
        given = {name: info[name] for name in cls.model_fields if name in info}
        try:
            labels = parse(cls, former | given, "An episode's `info`")
        except ConfigError as error:
            raise DatasetError(str(error)) from None
        last = max([*labels.noise_steps, *labels.learner_steps], default=-1)
        if last >= steps:
            raise DatasetError(
                f"An episode's `info` names the step {last}, and the episode has {steps}. Collect "
                "it again."
            )
        return labels
