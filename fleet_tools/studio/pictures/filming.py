"""Films episodes at any frame rate, with frames between control steps.

Videos are those that browsers play: H.264 in MP4, written by PyAV.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.perception.camera_view import CameraView
from fleet_tools.perception.display import HEIGHT, THIRD, WIDTH
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.simulation import Simulation
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.studio.pictures.annotations import (
    OBJECT_COLOR,
    PLANNED_COLOR,
    TOOL_COLOR,
    TRAVELLED_COLOR,
    Annotations,
    annotate,
    present_state,
)
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


def draw_on_image(
    image: np.ndarray,
    view: CameraView,
    annotations: Annotations,
    travelled: np.ndarray,
    caption: str,
) -> np.ndarray:
    """Draws annotations onto an image.

    Args:
        image: (height, width, 3) uint8, as `env.image(view)` returns it.
        view: Where its camera is.
        annotations: Annotations of the same moment.
        travelled: (k, 3), positions of the tool's acting keypoint so far, in the world, m.
        caption: A line of text.

    Returns:
        A new image.

    Raises:
        MissingLibraryError: Pillow is absent.
    """
    require("PIL", "draw on images")
    from PIL import Image, ImageDraw

    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas, "RGBA")
    if (cloud := annotations.cloud) is not None:
        for points, color in ((cloud.tool, TOOL_COLOR), (cloud.object, OBJECT_COLOR)):
            draw.point(_pixels(view, points), _rgba(color))
    for points, color in ((annotations.planned, PLANNED_COLOR), (travelled, TRAVELLED_COLOR)):
        if points is not None and len(points) > 1:
            draw.line(_pixels(view, points), _rgba(color), width=2)
    for keypoints, color in ((annotations.object, OBJECT_COLOR), (annotations.tool, TOOL_COLOR)):
        for x, y in _pixels(view, np.array(list(keypoints.values()))):
            draw.circle((x, y), 4, _rgba(color), outline=(255, 255, 255, 255))
    draw.text((12, 10), caption, (40, 44, 52, 255), font_size=16)
    return np.asarray(canvas)


def _pixels(view: CameraView, p_W: np.ndarray) -> list[tuple[float, float]]:
    """Returns the pixels of those points (n, 3) that are in front of the camera."""
    uv = view.project(p_W)
    return [(x, y) for x, y in uv[np.isfinite(uv).all(axis=1)].tolist()]


def _rgba(color: Iterable[float]) -> tuple[int, int, int, int]:
    red, green, blue = np.round(255.0 * np.array(list(color))).astype(int).tolist()
    return red, green, blue, 220


# --- Files ----------------------------------------------------------------------------------


def require_video() -> None:
    """Checks that annotated videos can be written.

    Raises:
        MissingLibraryError: PyAV or Pillow is absent; the message says how to install it.
    """
    require("av", "write videos")
    require("PIL", "write on videos")


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
    av = require("av", "write videos")
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
