"""Episodes filmed: frames at any rate, from the physics between control steps."""

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.perception.display import HEIGHT, THIRD, WIDTH
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.simulation import Simulation
from fleet_tools.visualization.annotations import annotate, present_state
from fleet_tools.visualization.drawing import draw_on_image
from fleet_tools.visualization.recording import PlannedEpisode, run_observed

_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Shot:
    """How an episode is filmed.

    Attributes:
        fps: Frames per second of the simulated time. Frames show the physics at the first of its
            updates, 4 ms apart, that is not earlier than they are.
        size: Width and height of the frames, pixels.
        camera: "third", or the name of a camera of the task.
        annotated: Whether keypoints, the plan, the path, the point cloud and a caption are drawn.
    """

    fps: float = 30
    size: tuple[int, int] = (WIDTH, HEIGHT)
    camera: str = THIRD
    annotated: bool = False


def film(
    env: gymnasium.Env,
    planned: PlannedEpisode,
    shot: Shot,
    add_frame: Callable[[np.ndarray], None],
) -> Episode:
    """Runs an episode, which is the same as without being filmed.

    Args:
        env: An environment with render_mode "rgb_array".
        planned: The episode.
        shot: How it is filmed.
        add_frame: Receives the frames, (height, width, 3) uint8, in their order: an episode of
            `n` seconds has `floor(n * fps) + 1`.

    Raises:
        ConfigError: The environment has another render mode.
        UnknownNameError: There is no such camera.
        MissingLibraryError: Annotations are asked for, and Pillow is absent.
    """
    env = unwrap(env)
    rate_hz = env.task.control_rate_hz
    count = steps = 0
    last: dict[str, np.ndarray] = {}
    travelled: list[np.ndarray] = []

    def frame(now: Simulation | None) -> np.ndarray:
        view = env.find_view(shot.camera, shot.size)
        image = env.image(view)
        if not shot.annotated:
            return image
        state = None if now is None else present_state(now)
        annotations = annotate(env, last, planned.policy, state)
        travelled.append(annotations.acting)
        return draw_on_image(image, view, annotations, np.array(travelled), planned.title)

    def catch_up(time: float, now: Simulation | None = None) -> None:
        nonlocal count
        if count / shot.fps > time + _ROUNDING_S:
            return
        present = frame(now)
        while count / shot.fps <= time + _ROUNDING_S:
            add_frame(present)
            count += 1

    def watch(simulation: Simulation) -> None:
        # The end of the step is shown once the policy has observed it.
        if simulation.time < simulation.steps / rate_hz - _ROUNDING_S:
            catch_up(simulation.time, simulation)

    def observe(observation: dict[str, np.ndarray]) -> None:
        nonlocal last, steps
        last = observation
        catch_up(steps / rate_hz)
        steps += 1

    with env.watched(watch):
        return run_observed(env, planned, observe)
