"""Makes the images of the four tasks, from real runs: `python docs/images/task_images.py`."""

from pathlib import Path

import numpy as np
from PIL import Image

from fleet_tools.envs.making import make_env
from fleet_tools.envs.outcomes import RUNNING
from fleet_tools.envs.tool_use_env import CONTROL_RATE
from fleet_tools.experts.policy import ExpertPolicy

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

PAUSE_STEPS = CONTROL_RATE  # one second with the last image
VIDEO_SIZE = (252, 280)
"""Width and height of an episode in the video."""


def main(folder: Path = Path(__file__).parent) -> None:
    """Writes `tools.png`, the first and last image of each episode, and `tools.webp`, a video.

    Args:
        folder: Folder of both.
    """
    videos = [record(*episode) for episode in EPISODES]
    ends = [np.concatenate([images[0], images[-1]], axis=1) for images in videos]
    rows = [np.concatenate(ends[k : k + 2], axis=1) for k in (0, 2)]
    image = Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE)
    image.save(folder / "tools.png", optimize=True)
    save_video(videos, folder / "tools.webp")


def record(task: str, seed: int, tool: str, object: str, table: str) -> list[np.ndarray]:
    """Runs the expert, and returns the images of the whole episode."""
    env = make_env(task=task, tool=tool, object=object, render_mode="rgb_array")
    env.reset(seed=seed)
    scene = env.scene.model_copy(update={**ORIGINAL_COLORS, "table_texture": table})
    observation, info = env.reset(options={"scene": scene})
    images = [env.render()]
    expert = ExpertPolicy(env)
    expert.reset()
    while info["outcome"] == RUNNING:
        observation, *_, info = env.step(expert.act(observation))
        images.append(env.render())
    print(f"{task}, {tool} on {object}: {info['outcome']}")
    env.close()
    return [image[CROP] for image in images if image is not None]


def save_video(videos: list[list[np.ndarray]], path: Path) -> None:
    """Writes videos side by side in real time; the last image of shorter ones stays."""
    length = max(map(len, videos)) + PAUSE_STEPS
    frames = []
    for k in range(length):
        row = np.concatenate([images[min(k, len(images) - 1)] for images in videos], axis=1)
        size = (VIDEO_SIZE[0] * len(videos), VIDEO_SIZE[1])
        frames.append(Image.fromarray(row).resize(size, Image.Resampling.LANCZOS))
    frames[0].save(
        path,
        save_all=True,
        append_images=frames[1:],
        duration=round(1000 / CONTROL_RATE),
        loop=0,
        quality=70,
        method=6,
    )


if __name__ == "__main__":
    main()
