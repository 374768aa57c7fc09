"""An episode as a value, and the comparison of two."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.imitation import Labels

if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import StartScene


@dataclass(frozen=True, eq=False)
class Episode:
    """The record of T control steps. Row t of what is observed comes before action t.

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
                    f"An episode with {steps} actions has {expected} rows of {name!r}; "
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
