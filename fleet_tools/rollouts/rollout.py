"""The rollout loop, attempts with recorded failures, and reasons of failures."""

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import gymnasium
import numpy as np

from fleet_tools.envs.outcomes import (
    POLICY_ERROR,
    RUNNING,
    SIMULATION_ERROR,
    SUCCESS,
    WORKER_ERROR,
)
from fleet_tools.errors import FleetToolsError, PredicateError, SimulationError
from fleet_tools.policies.policy import EXPLANATION, Policy, begin, claim, episode_seed, policy_info
from fleet_tools.rollouts.episode import Episode
from fleet_tools.utils.disk_errors import disk_errors

# Drake is imported with the environment.
if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import RecordedEnv, StartScene


def rollout(
    env: gymnasium.Env,
    policy: Policy,
    *,
    seed: int | None = None,
    scene: "StartScene | None" = None,
) -> Episode:
    """Runs one episode.

    A policy that raises a `FleetToolsError`, or whose action is invalid, ends the episode with the
    outcome "policy_error"; the steps so far are kept. The policy is given copies of observations,
    which it may change.

    Args:
        env: The environment, wrapped or not. The episode has the observations and rewards that its
            wrappers return, and the actions that the environment executed.
        policy: The policy, whose actions `env.step` takes; it is reset after the environment.
        seed: Draws the scene; if None, the environment's own generator does.
        scene: Replaces a drawn scene.

    Raises:
        SimulationError: The scene cannot even begin.
        PolicyError: The policy acts in another episode at present.
        ConfigError: Episodes of this environment, or in one of its wrappers, cannot be recorded.
        PredicateError: A predicate of the task file raised an error, for which no policy answers.
    """
    from fleet_tools.envs.recorded_env import recorded
    from fleet_tools.envs.wrappers import require_entries, require_single_steps

    recorder = _Recorder(recorded(env))
    require_single_steps(env)
    require_entries(env)
    release = claim(policy)
    try:
        return _run(env, policy, recorder, seed, scene)
    finally:
        release()


def _run(
    env: gymnasium.Env,
    policy: Policy,
    recorder: "_Recorder",
    seed: int | None,
    scene: "StartScene | None",
) -> Episode:
    observation, _ = env.reset(seed=seed, options={} if scene is None else {"scene": scene})
    recorder.start(observation)
    outcome, error = POLICY_ERROR, None
    try:
        begin(policy, episode_seed(observation))
        running = True
        while running:
            action = policy.act(copy.deepcopy(observation))
            observation, reward, terminated, truncated, info = env.step(action)
            recorder.add(observation, float(reward), terminated, truncated, info)
            if terminated or truncated:
                outcome, error, running = info["outcome"], info.get("error"), False
                if outcome == RUNNING:  # by a time limit outside of the one that `make` adds
                    outcome = recorder.env.end_by_time_limit()
    except PredicateError:
        raise
    except FleetToolsError as raised:
        outcome, error = POLICY_ERROR, f"{type(raised).__name__}: {raised}"
    return recorder.episode(outcome, error, dict(policy_info(policy)))


@dataclass(frozen=True)
class Attempt:
    """The result of an attempt at an episode.

    Attributes:
        episode: The episode; None if there is none.
        outcome: Its outcome, or why there is none.
        error: Error message, if there was an error.
        seconds: Wall time.
    """

    episode: Episode | None
    outcome: str
    error: str | None
    seconds: float

    @classmethod
    def lost(cls, reason: str) -> "Attempt":
        """Returns an attempt that no worker survived."""
        return cls(None, WORKER_ERROR, reason, 0.0)

    def facts(self) -> dict[str, Any]:
        """Returns the common fields of the records of datasets and evaluations, by name."""
        facts: dict[str, Any] = {
            "outcome": self.outcome,
            "success": False,
            "steps": 0,
            "error": self.error,
            "seconds": self.seconds,
        }
        if self.episode is not None:
            facts |= {
                "success": self.outcome == SUCCESS,
                "steps": len(self.episode),
                "state_digest": self.episode.final_digest,
                "info": dict(self.episode.info),
            }
        return facts


def attempt(make: Callable[[], Episode]) -> Attempt:
    """Attempts an episode; an error that affects this one alone is recorded instead of raised.

    Args:
        make: Makes the episode.

    Raises:
        FleetToolsError: An error that affects every episode, such as a missing library or a full
            disk.
    """
    started = time.perf_counter()
    episode, error = None, None
    try:
        with disk_errors():  # a full disk is no property of the scene
            episode = make()
        outcome, error = episode.outcome, episode.error
    except SimulationError as raised:  # the scene cannot even begin
        outcome, error = SIMULATION_ERROR, str(raised)
    except FleetToolsError:
        raise
    except Exception as raised:  # a defect of ours, or of a library
        outcome, error = WORKER_ERROR, f"{type(raised).__name__}: {raised}"
    return Attempt(episode, outcome, error, round(time.perf_counter() - started, 3))


class _Recorder:
    """Collects the rows of one episode."""

    def __init__(self, env: "RecordedEnv") -> None:
        self.env = env
        self._observations: list[dict[str, np.ndarray]] = []
        self._digests: list[int] = []
        self._steps: list[tuple[np.ndarray, float, bool, bool, bool]] = []

    def start(self, observation: dict[str, np.ndarray]) -> None:
        self._observations.append(observation)
        self._digests.append(self.env.state_digest())

    def add(
        self,
        observation: dict[str, np.ndarray],
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> None:
        self._steps.append((info["action"], reward, terminated, truncated, info["success"]))
        self.start(observation)

    def episode(self, outcome: str, error: str | None, info: dict[str, Any]) -> Episode:
        columns = zip(*self._steps, strict=True) if self._steps else [()] * 5
        actions, rewards, terminated, truncated, success = columns
        return Episode(
            scene=self.env.scene,
            observations={
                name: np.stack([observation[name] for observation in self._observations])
                for name in self._observations[0]
            },
            actions=np.array(actions, dtype=np.float32).reshape(-1, *self.env.action_spec.shape),
            rewards=np.array(rewards, dtype=np.float64),
            terminated=np.array(terminated, dtype=bool),
            truncated=np.array(truncated, dtype=bool),
            success=np.array(success, dtype=bool),
            digests=np.array(self._digests, dtype=np.uint64),
            outcome=outcome,
            error=error,
            info=info,
        )


class EpisodeFacts(Protocol):
    """Common fields of the records of datasets and evaluations."""

    @property
    def outcome(self) -> str:
        """See `fleet_tools.envs.outcomes`."""
        ...

    @property
    def success(self) -> bool:
        """Whether the outcome is a success."""
        ...

    @property
    def error(self) -> str | None:
        """Error message, if there was an error."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """Info of the policy about the episode."""
        ...


R = TypeVar("R", bound=EpisodeFacts)


def failure_causes(records: Iterable[R], name: Callable[[R], str]) -> dict[str, dict[str, Any]]:
    """Returns the number of failed episodes by outcome, each with an example.

    Args:
        records: Records of episodes; those with success are left out.
        name: Returns the name of a record's episode in the example.
    """
    causes: dict[str, dict[str, Any]] = {}
    for record in records:
        if not record.success:
            why = record.error or record.info.get(EXPLANATION)
            example = f"{name(record)}: {why}" if why else name(record)
            cause = causes.setdefault(record.outcome, {"count": 0, "example": example})
            cause["count"] += 1
    return causes


def cause_lines(causes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a line of text for each outcome of `failure_causes`."""
    return [
        f"  {cause['count']} ended as {outcome}, such as {cause['example']}"
        for outcome, cause in causes.items()
    ]
