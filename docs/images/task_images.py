"""Makes the images of four tasks, from real runs: `python docs/images/task_images.py`."""

from pathlib import Path

import numpy as np
from labels import labelled
from PIL import Image

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.studio.pictures.filming import Shot, film
from fleet_tools.studio.pictures.recording import PlannedEpisode

EPISODES = [
    ("hammer", 3, "claw", "round_nail", "wood"),
    ("wrench", 4, "open_end", "hex_nut", "stone"),
    ("spatula", 2, "turner", "pancake", "tiles"),
    ("knife", 5, "chef", "gouda", "cloth"),
]
"""Task, seed, tool, object and texture of the table."""

ORIGINAL_COLORS = {"tool_tint": (1, 1, 1), "object_tint": (1, 1, 1), "table_tint": (1, 1, 1)}
CROP = (slice(60, 460), slice(170, 530))
"""Rows and columns of the third-person view."""

FPS = 10
"""Frames per second of the video, whose last image stays for a second."""
VIDEO_SIZE = (216, 240)
"""Width and height of an episode in the video; its label is below it."""


def main(folder: Path = Path(__file__).parent) -> None:
    """Writes `tools.png`, the first and last image of each episode, and `tools.webp`, a video.

    Args:
        folder: Folder of both.
    """
    videos = [record(*episode) for episode in EPISODES]
    ends = [
        np.concatenate(
            [
                np.asarray(labelled(images[k], f"{label(*episode)}, {end}"))
                for k, end in ((0, "start"), (-1, "end"))
            ],
            axis=1,
        )
        for episode, images in zip(EPISODES, videos, strict=True)
    ]
    rows = [np.concatenate(ends[k : k + 2], axis=1) for k in (0, 2)]
    image = Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE)
    image.save(folder / "tools.png", optimize=True)
    save_video(videos, folder / "tools.webp")


def label(task: str, seed: int, tool: str, object: str, table: str) -> str:
    """Returns the label of an episode."""
    return f"{task}: {tool}, {object}".replace("_", " ")


def record(task: str, seed: int, tool: str, object: str, table: str) -> list[np.ndarray]:
    """Runs the expert, and returns the images of the whole episode."""
    env = EnvSpec.of(task=task, tool=tool, object=object, render_mode="rgb_array").make_tool_use()
    env.reset(seed=seed)
    scene = env.scene.model_copy(update={**ORIGINAL_COLORS, "table_texture": table})
    images: list[np.ndarray] = []
    planned = PlannedEpisode("", ExpertPolicy(env), scene=scene)
    episode = film(env, planned, Shot(fps=FPS), lambda image: images.append(image[CROP]))
    print(f"{task}, {tool} on {object}: {episode.outcome}")
    env.close()
    return images


def save_video(videos: list[list[np.ndarray]], path: Path) -> None:
    """Writes videos side by side in real time; the last image of shorter ones stays."""
    length = max(map(len, videos)) + FPS
    frames = []
    for k in range(length):
        row = [
            np.asarray(labelled(resized(images[min(k, len(images) - 1)]), label(*episode)))
            for episode, images in zip(EPISODES, videos, strict=True)
        ]
        frames.append(Image.fromarray(np.concatenate(row, axis=1)))
    frames[0].save(
        path,
        save_all=True,
        append_images=frames[1:],
        duration=round(1000 / FPS),
        loop=0,
        quality=30,
        method=6,
    )


def resized(image: np.ndarray) -> np.ndarray:
    """Returns an image in the size of the video."""
    return np.asarray(Image.fromarray(image).resize(VIDEO_SIZE, Image.Resampling.LANCZOS))


if __name__ == "__main__":
    main()
