"""Makes the videos of the tasks, from real runs: `python docs/images/task_videos.py`.

Each task has one, `TASK.webp`: the expert in a scene of each of three splits, drawn by its seed but
for the tints, without which the models have the colours of their files. `pushes.webp` has the
first scenes of two tasks at the protocol's level `pushes`. Names after the command make theirs
alone.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from labels import labelled
from PIL import Image
from pydrake.math import RollPitchYaw

from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.display import look_at
from fleet_tools.sim.scene import Scene
from fleet_tools.studio.pictures import filming
from fleet_tools.studio.pictures.filming import Shot
from fleet_tools.studio.pictures.recording import PlannedEpisode

SCENES = [("train", 0), ("unseen_tools", 4), ("unseen_objects", 7)]
"""Split and seed of each scene."""

PUSHED = ("spatula", "wrench")
"""The tasks of the video of pushes."""

SLOWED = {"hammer": 2}
"""How many times slower than real time a task's video is; others are in real time."""

SEEN_FROM = (0.7, -0.62, 0.42)
"""Direction in which the camera lies, in the world."""

MARGIN = 1.25
"""How much wider the camera sees than tool, hand and object are apart at first."""

SIZE = (360, 360)
"""Width and height of the view; the label is below it."""

ORIGINAL_COLORS = {"tool_tint": (1, 1, 1), "object_tint": (1, 1, 1), "table_tint": (1, 1, 1)}
PAUSE_S = 1
"""How long the last image of an episode is shown."""


def main(names: Sequence[str], folder: Path = Path(__file__).parent) -> None:
    """Writes the videos.

    Args:
        names: Names of the tasks, or "pushes"; all without any.
        folder: Their folder.
    """
    for name in names or (*task_names(), "pushes"):
        if name == "pushes":
            frames = [frame for task in PUSHED for frame in pushed(task)]
            rate_hz = load_task(PUSHED[0]).control_rate_hz
        else:
            frames = [frame for scene in SCENES for frame in drawn(name, *scene)]
            rate_hz = load_task(name).control_rate_hz
        frames[0].save(
            folder / f"{name}.webp",
            save_all=True,
            append_images=frames[1:],
            duration=round(1000 / rate_hz * SLOWED.get(name, 1)),
            loop=0,
            quality=70,
            method=6,
        )


def drawn(task: str, split: str, seed: int) -> list[Image.Image]:
    """Returns the images of an episode in a scene of a split."""
    env = EnvSpec.of(task=task, split=split, render_mode="rgb_array").make_tool_use()
    env.reset(seed=seed)
    return film(env, split)


def pushed(task: str) -> list[Image.Image]:
    """Returns the images of an episode in the first scene of a task at the level `pushes`."""
    protocol = load_protocol(PROTOCOL, level="pushes")
    trial = protocol.trials(task=task)[0]
    env = EnvSpec.of(task=task, render_mode="rgb_array").make_tool_use()
    env.reset(options={"scene": protocol.scene(env.task, trial)})
    return film(env, "pushes")


def film(env: ToolUseEnv, where: str) -> list[Image.Image]:
    """Runs the expert, and returns an image for each control step, and the last one for longer."""
    images: list[np.ndarray] = []
    planned = PlannedEpisode("", ExpertPolicy(env), scene=seen_closely(env))
    rate_hz = env.task.control_rate_hz
    shot = Shot(fps=rate_hz, size=SIZE, camera="overhead")
    episode = filming.film(env, planned, shot, images.append)
    env.close()
    label = f"{where}: {episode.scene.tool}, {episode.scene.object}"
    print(f"{env.task.name}, {label}: {episode.outcome} after {len(episode)} steps")
    frames = [labelled(image, label) for image in images]
    return frames + frames[-1:] * round(PAUSE_S * rate_hz)


def seen_closely(env: ToolUseEnv) -> Scene:
    """Returns the present scene in the models' colours, with its overhead camera close enough.

    It sees hand, tool and object from the first frame on.
    """
    state = env.world_state()
    points = [*state.p_W_tool.values(), *state.p_W_object.values(), state.X_WE.translation()]
    low, high = np.min(points, axis=0), np.max(points, axis=0)
    target, radius = (low + high) / 2, np.linalg.norm(high - low) / 2
    half_angle = np.deg2rad(env.task.cameras["overhead"].field_of_view_deg) / 2
    direction = np.array(SEEN_FROM) / np.linalg.norm(SEEN_FROM)
    X_WC = look_at(target + MARGIN * radius / np.sin(half_angle) * direction, target)
    rpy_deg = np.rad2deg(RollPitchYaw(X_WC.rotation()).vector())
    camera = Pose(translation_m=tuple(X_WC.translation()), rpy_deg=tuple(rpy_deg))
    cameras = {**env.scene.cameras, "overhead": camera}
    return env.scene.model_copy(update={**ORIGINAL_COLORS, "cameras": cameras})


if __name__ == "__main__":
    main(sys.argv[1:])
