"""Episodes run for display, and their recordings in Meshcat."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from pydrake.geometry import MeshcatAnimation

from fleet_tools.envs.recorded_env import StartScene
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError
from fleet_tools.policies.policy import Policy, policy_info
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.simulation import Simulation
from fleet_tools.visualization.annotations import Motion, annotate, present_state
from fleet_tools.visualization.drawing import MeshcatDrawing

ObservationCallback = Callable[[dict[str, np.ndarray]], None]
"""Function that receives each observation of an episode."""

RECORDING_RATE_HZ = 64
"""Frame rate of recordings. Drake publishes at the same rate, so that frames do not mix moments."""


@dataclass(frozen=True, eq=False)
class PlannedEpisode:
    """An episode that is to be run for display.

    Attributes:
        title: Caption.
        policy: The policy that acts.
        seed: Seed that draws the scene; None if `scene` is given.
        scene: The scene; None if it is drawn.
    """

    title: str
    policy: Policy
    seed: int | None = None
    scene: StartScene | None = None


class ObservedPolicy:
    """A policy with a callback, which receives each observation after the policy has acted on it.

    Args:
        policy: The policy.
        callback: Receives each observation.
    """

    def __init__(self, policy: Policy, callback: ObservationCallback) -> None:
        self._policy, self._callback = policy, callback

    def reset(self) -> None:
        """Resets the policy."""
        self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, (6,)."""
        action = self._policy.act(observation)
        self._callback(observation)
        return action

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`."""
        return dict(policy_info(self._policy))


def run_observed(
    env: gymnasium.Env, planned: PlannedEpisode, callback: ObservationCallback
) -> Episode:
    """Runs an episode; the callback receives all observations, from the first to the last.

    Args:
        env: The environment.
        planned: The episode.
        callback: Is called when the policy has chosen its action, and once at the end.
    """
    policy = ObservedPolicy(planned.policy, callback)
    episode = rollout(env, policy, seed=planned.seed, scene=planned.scene)
    callback({name: rows[-1] for name, rows in episode.observations.items()})
    return episode


class MeshcatRecorder:
    """Records episodes in an environment's Meshcat server, one at a time.

    Args:
        env: An environment with render_mode "human".
        annotated: Whether keypoints, the plan, the path and the point cloud are drawn.

    Attributes:
        url: Address at which a browser shows the last recording.

    Raises:
        ConfigError: The environment has another render mode.
    """

    def __init__(self, env: gymnasium.Env, *, annotated: bool = True) -> None:
        self._env, self._annotated = unwrap(env), annotated
        if self._env.meshcat is None:
            raise ConfigError(
                'Recordings need an environment with render_mode="human"; '
                f"given: {self._env.render_mode!r}."
            )
        self._meshcat = self._env.meshcat
        self.url = self._meshcat.web_url()

    def record(self, planned: PlannedEpisode) -> Episode:
        """Runs an episode, and publishes a recording of it."""
        env, meshcat = self._env, self._meshcat
        meshcat.DeleteRecording()
        meshcat.StartRecording(RECORDING_RATE_HZ, set_visualizations_while_recording=False)
        drawing = MeshcatDrawing(meshcat)

        frame = 0

        def draw(observation: dict[str, np.ndarray]) -> None:
            if self._annotated:
                drawing.draw(annotate(env, observation, planned.policy), env.world_state().time)

        def move(simulation: Simulation) -> None:
            # Drake publishes at the start of each frame, when this is called, too.
            nonlocal frame
            before, frame = frame, math.floor(simulation.time * RECORDING_RATE_HZ)
            within = simulation.time < simulation.steps / env.task.control_rate_hz
            if frame != before and within and (state := present_state(simulation)):
                drawing.move_cloud(Motion.between(env.world_state(), state), state.time)

        with env.watched(move) if self._annotated else nullcontext():
            episode = run_observed(env, planned, draw)
        meshcat.StopRecording()
        meshcat.get_mutable_recording().set_loop_mode(MeshcatAnimation.LoopMode.kLoopRepeat)
        meshcat.PublishRecording()
        return episode

    def html(self) -> str:
        """Returns the last recording as a page that needs no server."""
        return self._meshcat.StaticHtml()


def render_frame(env: gymnasium.Env) -> np.ndarray:
    """Returns the third-person view of the present state, (480, 640, 3) uint8.

    Raises:
        ConfigError: The environment has another render_mode than "rgb_array".
    """
    frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise ConfigError(
            f'Frames need an environment with render_mode="rgb_array"; given: {env.render_mode!r}.'
        )
    return frame
