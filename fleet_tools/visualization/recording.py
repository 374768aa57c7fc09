"""An episode while people look: recorded in Meshcat, or filmed picture by picture."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from pydrake.geometry import MeshcatAnimation

from fleet_tools.rollouts.episode import Episode, Policy, rollout
from fleet_tools.visualization.annotations import annotate
from fleet_tools.visualization.drawing import MeshcatDrawing, draw_on_picture

Looker = Callable[[dict[str, np.ndarray]], None]

RECORDING_RATE_HZ = 64
"""That at which Drake publishes, so that each moment of a recording is one moment."""


@dataclass(frozen=True, eq=False)
class Show:
    """An episode that is about to be shown.

    Attributes:
        title: What it is.
        policy: Who acts.
        reset: The keywords of `rollout` that begin it.
    """

    title: str
    policy: Policy
    reset: dict[str, Any]


class Watched:
    """A policy while somebody looks: at every observation, when it has decided what to do.

    Args:
        policy: Who acts.
        look: Is shown each observation.
    """

    def __init__(self, policy: Policy, look: Looker) -> None:
        self._policy, self._look = policy, look

    def reset(self) -> None:
        """Resets the policy."""
        self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, (6,)."""
        action = self._policy.act(observation)
        self._look(observation)
        return action

    @property
    def info(self) -> dict[str, Any]:
        """What the policy wants to be remembered."""
        return dict(getattr(self._policy, "info", {}))


def watch(env: gymnasium.Env, show: Show, look: Looker) -> Episode:
    """Runs an episode; `look` is shown every observation, from the first to the last."""
    episode = rollout(env, Watched(show.policy, look), **show.reset)
    look({name: rows[-1] for name, rows in episode.observations.items()})
    return episode


def record(env: gymnasium.Env, show: Show) -> Episode:
    """Runs an episode, and leaves a recording of it, with annotations, in Meshcat.

    Args:
        env: An environment with render_mode "human".
        show: What to run.
    """
    meshcat, unwrapped = env.unwrapped.meshcat, env.unwrapped
    meshcat.DeleteRecording()
    meshcat.StartRecording(RECORDING_RATE_HZ, set_visualizations_while_recording=False)
    drawing = MeshcatDrawing(meshcat)

    def look(observation: dict[str, np.ndarray]) -> None:
        drawing.draw(annotate(env, show.policy, observation), unwrapped.world_state().time)

    episode = watch(env, show, look)
    meshcat.StopRecording()
    meshcat.get_mutable_recording().set_loop_mode(MeshcatAnimation.LoopMode.kLoopRepeat)
    meshcat.PublishRecording()
    return episode


def film(env: gymnasium.Env, show: Show) -> tuple[Episode, list[np.ndarray]]:
    """Runs an episode, and returns it with a picture of every moment, with annotations.

    Args:
        env: An environment with render_mode "rgb_array".
        show: What to run.
    """
    pictures, way = [], []

    def look(observation: dict[str, np.ndarray]) -> None:
        annotations = annotate(env, show.policy, observation)
        way.append(annotations.acting)
        picture = draw_on_picture(env.render(), annotations, np.array(way), show.title)
        pictures.append(picture)

    return watch(env, show, look), pictures
