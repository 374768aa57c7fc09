"""An episode as a value, the loop that makes it, and the comparison of two."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
import numpy as np

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, SUCCESS, WORKER_ERROR
from fleet_tools.errors import DatasetError, FleetToolsError, SimulationError

if TYPE_CHECKING:
    from fleet_tools.sim.scene import Scene


UNMEANT = "disturbed"
"""In `info`, the steps whose action is not what the policy meant, and is not to be imitated."""


class Policy(Protocol):
    """Whatever acts on observations.

    It may also have `info`, a mapping to plain JSON data, with what it wants to be remembered
    about its episode, such as {"planning_seconds": 0.03}.
    """

    def reset(self) -> None:
        """Forgets the last episode; the environment has begun the next one."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns an action, (6,)."""


@dataclass(frozen=True, eq=False)
class Episode:
    """What happened in T control steps. Row t of what is observed comes before action t.

    Attributes:
        scene: Where it began; with the actions, it determines all the rest.
        observations: Arrays with T + 1 rows by name; see `fleet_tools.envs.observations`.
        actions: (T, 6) float32, as the environment executed them: in [-1, 1], in units of the
            task's action bounds (m, rad), in the end effector's frame.
        rewards: (T,) float64.
        terminated, truncated: (T,) bool.
        success: (T,) bool, whether the task's success predicates hold after each step.
        digests: (T + 1,) uint64, hashes of the exact state at the start and after each step.
        outcome: "success", "time_limit", "simulation_error" or "policy_error".
        error: What went wrong, for the latter two.
        info: Plain JSON data that may differ when the episode is run again, such as seconds.

    Raises:
        DatasetError: The arrays do not belong together.
    """

    scene: "Scene"
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
    def succeeded(self) -> bool:
        """Whether it ended as a success."""
        return self.outcome == SUCCESS

    def step_arrays(self) -> dict[str, np.ndarray]:
        """Returns what there is T times, by name."""
        names = ("actions", "rewards", "terminated", "truncated", "success")
        return {name: getattr(self, name) for name in names}

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Returns what there is T + 1 times, by name."""
        return {
            "digests": self.digests,
            **{f"observations/{name}": rows for name, rows in self.observations.items()},
        }


class StoredActions:
    """A policy that does what was done before.

    Args:
        actions: (T, 6), as `Episode.actions`.
    """

    def __init__(self, actions: np.ndarray) -> None:
        self._actions = actions
        self._remaining = iter(actions)

    def reset(self) -> None:
        """Begins from the first action."""
        self._remaining = iter(self._actions)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the next action, (6,).

        Raises:
            FleetToolsError: There are no more.
        """
        action = next(self._remaining, None)
        if action is None:
            raise FleetToolsError(f"All {len(self._actions)} stored actions are done.")
        return action


@dataclass(frozen=True)
class Difference:
    """Where two episodes part.

    Attributes:
        step: 0 is the start, t what comes of the t-th action.
        what: The names of what differs there.
    """

    step: int
    what: list[str]


def first_difference(one: Episode, other: Episode) -> Difference | None:
    """Returns where two episodes first differ by a bit; their `error` and `info` do not count."""
    differing: dict[str, int] = {}
    for arrays, offset in ((Episode.state_arrays, 0), (Episode.step_arrays, 1)):
        mine, its = arrays(one), arrays(other)
        for name in mine.keys() | its.keys():
            row = _first_differing_row(mine.get(name), its.get(name))
            if row is not None:
                differing[name] = row + offset
    if not differing:
        return None if one.outcome == other.outcome else Difference(len(one), ["outcome"])
    step = min(differing.values())
    return Difference(step, sorted(name for name, at in differing.items() if at == step))


@dataclass(frozen=True)
class NoEpisode:
    """What comes of an attempt that gave no episode."""

    outcome: str
    error: str


def try_episode(make: Callable[[], Episode]) -> Episode | NoEpisode:
    """Makes an episode; what costs this one alone is taken down instead of raised.

    Raises:
        FleetToolsError: What is wrong with every episode, such as a missing library.
    """
    try:
        return make()
    except SimulationError as error:  # the scene cannot even begin
        return NoEpisode(SIMULATION_ERROR, str(error))
    except FleetToolsError:
        raise
    except Exception as error:  # a mistake of ours, or of a library
        return NoEpisode(WORKER_ERROR, f"{type(error).__name__}: {error}")


def rollout(
    env: gymnasium.Env, policy: Policy, *, seed: int | None = None, scene: "Scene | None" = None
) -> Episode:
    """Runs one episode.

    A policy that raises a `FleetToolsError`, or whose action is none, ends the episode as
    "policy_error"; the steps so far are kept.

    Args:
        env: An environment of this package, wrapped or not.
        policy: Reset after the environment.
        seed: Draws the scene; the environment's own generator does if None.
        scene: Takes the place of a drawn one.

    Raises:
        SimulationError: The scene cannot even begin.
    """
    observation, _ = env.reset(seed=seed, options={} if scene is None else {"scene": scene})
    recorder = _Recorder(env, observation)
    outcome = error = None
    try:
        policy.reset()
        while outcome is None:
            action = policy.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            recorder.add(observation, reward, terminated, truncated, info)
            if terminated or truncated:
                outcome, error = info["outcome"], info.get("error")
    except FleetToolsError as raised:
        outcome, error = POLICY_ERROR, f"{type(raised).__name__}: {raised}"
    return recorder.episode(outcome, error, dict(getattr(policy, "info", {})))


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


class _Recorder:
    """Gathers the rows of one episode."""

    def __init__(self, env: gymnasium.Env, observation: dict[str, np.ndarray]) -> None:
        self._env = env.unwrapped
        self._observations = [observation]
        self._digests = [self._env.state_digest()]
        self._steps: list[tuple] = []

    def add(self, observation, reward, terminated, truncated, info) -> None:
        self._steps.append((info["action"], reward, terminated, truncated, info["success"]))
        self._observations.append(observation)
        self._digests.append(self._env.state_digest())

    def episode(self, outcome: str, error: str | None, info: dict[str, Any]) -> Episode:
        actions, rewards, *flags = zip(*self._steps, strict=True) if self._steps else [()] * 5
        terminated, truncated, success = (np.array(flag, dtype=bool) for flag in flags)
        return Episode(
            scene=self._env.scene,
            observations={
                name: np.stack([observation[name] for observation in self._observations])
                for name in self._observations[0]
            },
            actions=np.array(actions, dtype=np.float32).reshape(-1, *self._env.action_space.shape),
            rewards=np.array(rewards, dtype=np.float64),
            terminated=terminated,
            truncated=truncated,
            success=success,
            digests=np.array(self._digests, dtype=np.uint64),
            outcome=outcome,
            error=error,
            info=info,
        )
