"""Films episodes at any frame rate, with frames between control steps.

Videos are those that browsers play: H.264 in MP4, written by PyAV.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.perception.display import HEIGHT, THIRD, WIDTH
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.simulation import Simulation
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.studio.pictures.recording import PlannedEpisode, run_observed
from fleet_tools.utils.libraries import require

_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Shot:
    """Settings for filming an episode.

    Attributes:
        fps: Frames per second of the simulated time. Frames show the physics at the first of its
            updates, 4 ms apart, that is not earlier than they are.
        size: Width and height of the frames, pixels.
        camera: "third", or the name of a camera of the task.
    """

    fps: float = 30
    size: tuple[int, int] = (WIDTH, HEIGHT)
    camera: str = THIRD


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
    """
    env = unwrap(env)
    rate_hz = env.task.control_rate_hz
    count = steps = 0

    def catch_up(time: float) -> None:
        nonlocal count
        if count / shot.fps > time + _ROUNDING_S:
            return
        present = env.image(env.find_view(shot.camera, shot.size))
        while count / shot.fps <= time + _ROUNDING_S:
            add_frame(present)
            count += 1

    def watch(simulation: Simulation) -> None:
        # The end of the step is shown once the policy has observed it.
        if simulation.time < simulation.steps / rate_hz - _ROUNDING_S:
            catch_up(simulation.time)

    def observe(_: dict[str, np.ndarray]) -> None:
        nonlocal steps
        catch_up(steps / rate_hz)
        steps += 1

    with env.watched(watch):
        return run_observed(env, planned, observe)


# --- Files ----------------------------------------------------------------------------------


def require_video() -> Any:
    """Returns PyAV; a MissingLibraryError says how to install it."""
    return require("av", "write videos")


def write_video(
    path: Path, frames: Iterable[np.ndarray], rate_hz: float, *, reproducible: bool = False
) -> None:
    """Writes a video.

    Args:
        path: File, which appears when the video is complete.
        frames: (height, width, 3) uint8 each, all of the same, even height and width.
        rate_hz: Frames per second.
        reproducible: Whether the same frames always give the same bytes, which takes longer.

    Raises:
        MissingLibraryError: PyAV is absent.
        OSError: The file cannot be written.
    """
    with open_video(path, rate_hz, reproducible=reproducible) as add_frame:
        for frame in frames:
            add_frame(frame)


@contextmanager
def open_video(
    path: Path, rate_hz: float, *, reproducible: bool = False
) -> Iterator[Callable[[np.ndarray], None]]:
    """Opens a video, and gives the function that adds a frame; see `write_video`."""
    av = require_video()
    options = {"crf": "20"}
    if reproducible:  # x264's vector code does not always give the same bytes
        options["x264-params"] = "asm=0:threads=1"
    with (
        atomic_write(path) as aside,
        av.open(str(aside.absolute()), "w", options={"movflags": "faststart"}) as file,
    ):
        stream = None

        def add_frame(frame: np.ndarray) -> None:
            nonlocal stream
            if stream is None:
                rate = Fraction(rate_hz).limit_denominator(1000)
                stream = file.add_stream("libx264", rate=rate, options=options)
                stream.height, stream.width = frame.shape[:2]
                stream.pix_fmt = "yuv420p"  # the only pixel format that every browser plays
            encoded = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            file.mux(stream.encode(encoded))

        yield add_frame
        if stream is not None:
            file.mux(stream.encode())
