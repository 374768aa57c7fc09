"""The loop that makes an episode, and attempts at it whose failures are recorded."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from fleet_tools.policies.policy import Policy, policy_info
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
    outcome "policy_error"; the steps so far are kept.

    Args:
        env: The environment, wrapped or not. The episode has the observations and rewards that its
            wrappers return, and the actions that the environment executed.
        policy: The policy, whose actions `env.step` takes; it is reset after the environment.
        seed: Draws the scene; if None, the environment's own generator does.
        scene: Replaces a drawn scene.

    Raises:
        SimulationError: The scene cannot even begin.
        ConfigError: Episodes of this environment, or in one of its wrappers, cannot be recorded.
        PredicateError: A predicate of the task file raised an error, for which no policy answers.
    """
    from fleet_tools.envs.recorded_env import recorded
    from fleet_tools.envs.wrappers import require_entries, require_single_steps

    inner = recorded(env)
    recorder = _Recorder(inner)
    require_single_steps(env)
    require_entries(env)
    observation, _ = env.reset(seed=seed, options={} if scene is None else {"scene": scene})
    recorder.start(observation)
    outcome, error = POLICY_ERROR, None
    try:
        policy.reset()
        running = True
        while running:
            action = policy.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            recorder.add(observation, float(reward), terminated, truncated, info)
            if terminated or truncated:
                outcome, error, running = info["outcome"], info.get("error"), False
                if outcome == RUNNING:  # by a time limit outside of the one that `make` adds
                    outcome = inner.end_by_time_limit()
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
        """Returns what records of datasets and of evaluations have in common, by name."""
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
        self._env = env
        self._observations: list[dict[str, np.ndarray]] = []
        self._digests: list[int] = []
        self._steps: list[tuple[np.ndarray, float, bool, bool, bool]] = []

    def start(self, observation: dict[str, np.ndarray]) -> None:
        self._observations.append(observation)
        self._digests.append(self._env.state_digest())

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
            scene=self._env.scene,
            observations={
                name: np.stack([observation[name] for observation in self._observations])
                for name in self._observations[0]
            },
            actions=np.array(actions, dtype=np.float32).reshape(-1, *self._env.action_spec.shape),
            rewards=np.array(rewards, dtype=np.float64),
            terminated=np.array(terminated, dtype=bool),
            truncated=np.array(truncated, dtype=bool),
            success=np.array(success, dtype=bool),
            digests=np.array(self._digests, dtype=np.uint64),
            outcome=outcome,
            error=error,
            info=info,
        )
