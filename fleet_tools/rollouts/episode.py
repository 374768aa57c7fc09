"""An episode as a value, its steps for imitation, and the comparison of two episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import pydantic

from fleet_tools.config.values import CountOrZero, Number, Value, parse
from fleet_tools.errors import ConfigError, DatasetError

# Drake is imported with the environment.
if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import StartScene


NOISE_STEPS = "noise_steps"
"""Key of the steps with noise in their actions, see `experts.demonstrators`."""
LEARNER_STEPS, EXPERT_ACTIONS = "learner_steps", "expert_actions"
"""Keys of a learner's steps, and of the expert's actions there, see `experts.demonstrators`."""

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
            raise ValueError("expected one action of the expert for each step of the learner")
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
                f"The `info` of an episode names step {last}, but the episode has {steps} steps. "
                "Collect it again."
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
                f"The `info` of an episode has actions of the expert with {actions.shape[1]} "
                f"entries, but the episode has actions with {executed.shape[1]}. Collect it again."
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


@dataclass(frozen=True, eq=False)
class Episode:
    """The record of T control steps. Row t of an observation comes before action t.

    Attributes:
        scene: Scene in which it began; with the actions, it determines all the rest.
        observations: Arrays with T + 1 rows by name; see `fleet_tools.envs.observations`.
        actions: (T, n) float32, as the environment executed them: in [-1, 1]; of tool use (T, 6),
            in units of the task's action bounds (m, rad), in the end effector's frame.
        rewards: (T,) float64.
        terminated: (T,) bool.
        truncated: (T,) bool.
        success: (T,) bool, whether the task's success predicates hold after each step.
        digests: (T + 1,) uint64, hashes of the exact state at the start and after each step.
        outcome: "success", "time_limit", "object_lost", "simulation_error" or "policy_error".
        error: Error message, for the latter two.
        info: Plain JSON data that may differ when the episode is run again, such as wall times.

    Raises:
        DatasetError: The arrays have inconsistent lengths.
    """

    scene: "StartScene"
    observations: dict[str, np.ndarray]
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    success: np.ndarray
    digests: np.ndarray
    outcome: str
    error: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the lengths of the arrays."""
        steps = len(self.actions)
        for name, array in {**self.step_arrays(), **self.state_arrays()}.items():
            expected = steps + (name in self.state_arrays())
            if len(array) != expected:
                raise DatasetError(
                    f"Expected {expected} rows of {name!r} in an episode with {steps} actions; "
                    f"given: {len(array)}."
                )

    def __len__(self) -> int:
        """Returns T, the number of control steps."""
        return len(self.actions)

    @property
    def labels(self) -> Labels:
        """Which of the steps and actions are to be imitated.

        Raises:
            DatasetError: What `info` says about it is not valid.
        """
        return Labels.of(self.info, len(self))

    @property
    def final_digest(self) -> str:
        """Hash of the final state, as files store it."""
        return hexadecimal(self.digests[-1])

    def step_arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays with T rows, by name."""
        names = ("actions", "rewards", "terminated", "truncated", "success")
        return {name: getattr(self, name) for name in names}

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays with T + 1 rows, by name."""
        return {
            "digests": self.digests,
            **{f"observations/{name}": rows for name, rows in self.observations.items()},
        }


def hexadecimal(digest: np.uint64) -> str:
    """Returns a hash of a state, as files store it."""
    return f"{int(digest):016x}"


@dataclass(frozen=True)
class EpisodeDifference:
    """The first difference of two episodes.

    Attributes:
        step: 0 is the start, t the result of the t-th action.
        what: Names of the arrays that differ there.
    """

    step: int
    what: list[str]


def first_difference(one: Episode, other: Episode) -> EpisodeDifference | None:
    """Returns where two episodes first differ by a bit; `error` and `info` are not compared."""
    differing: dict[str, int] = {}
    for arrays, offset in ((Episode.state_arrays, 0), (Episode.step_arrays, 1)):
        first, second = arrays(one), arrays(other)
        for name in first.keys() | second.keys():
            row = _first_differing_row(first.get(name), second.get(name))
            if row is not None:
                differing[name] = row + offset
    if not differing:
        return None if one.outcome == other.outcome else EpisodeDifference(len(one), ["outcome"])
    step = min(differing.values())
    return EpisodeDifference(step, sorted(name for name, at in differing.items() if at == step))


def _first_differing_row(one: np.ndarray | None, other: np.ndarray | None) -> int | None:
    if one is None or other is None or one.dtype != other.dtype or one.shape[1:] != other.shape[1:]:
        return 0
    common = min(len(one), len(other))
    rows = (_bytes(one[:common]) != _bytes(other[:common])).any(axis=1).nonzero()[0]
    if len(rows):
        return int(rows[0])
    return common if len(one) != len(other) else None


def _bytes(rows: np.ndarray) -> np.ndarray:
    width = rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
    return np.frombuffer(rows.tobytes(), np.uint8).reshape(len(rows), width)
