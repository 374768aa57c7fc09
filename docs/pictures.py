"""Makes the pictures of the README from real runs: `python docs/pictures.py`."""

from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import fleet_tools  # noqa: F401
from fleet_tools.envs.tool_use_env import CONTROL_RATE
from fleet_tools.experts.policy import ExpertPolicy

SHOTS = [  # task, seed, tool, object, table
    ("Hammer", 3, "claw", "round_nail", "wood"),
    ("Wrench", 4, "open_end", "hex_nut", "stone"),
    ("Spatula", 2, "turner", "pancake", "tiles"),
    ("Knife", 5, "chef", "gouda", "cloth"),
]
AS_FILED = {"tool_tint": (1, 1, 1), "object_tint": (1, 1, 1), "table_tint": (1, 1, 1)}
REST = CONTROL_RATE  # a second, in which the last picture stays
MOVING_SIZE = (252, 280)


def main() -> None:
    """Writes `tools.png`, begin and end of an episode of every task, and `tools.webp`, all of it.

    Both lie beside this file.
    """
    films = [film(*arguments) for arguments in SHOTS]
    still = [np.concatenate([pictures[0], pictures[-1]], axis=1) for pictures in films]
    rows = [np.concatenate(still[k : k + 2], axis=1) for k in (0, 2)]
    picture = Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE)
    picture.save(Path(__file__).parent / "tools.png", optimize=True)
    save_moving(films, Path(__file__).parent / "tools.webp")


def film(task: str, seed: int, tool: str, object: str, table: str) -> list[np.ndarray]:
    """Runs the expert, and returns the pictures from the episode's beginning to its end."""
    env = gymnasium.make(f"FleetTools/{task}-v0", tool=tool, object=object, render_mode="rgb_array")
    env.reset(seed=seed)
    scene = env.unwrapped.scene.model_copy(update={**AS_FILED, "table_texture": table})
    observation, info = env.reset(options={"scene": scene})
    pictures = [env.render()]
    expert = ExpertPolicy(env)
    expert.reset()
    while info["outcome"] == "running":
        observation, *_, info = env.step(expert.act(observation))
        pictures.append(env.render())
    print(f"{task}, {tool} on {object}: {info['outcome']}")
    env.close()
    return [picture[60:460, 170:530] for picture in pictures]


def save_moving(films: list[list[np.ndarray]], path: Path) -> None:
    """Writes films side by side in real time; those that are over wait for the longest."""
    length = max(map(len, films)) + REST
    frames = []
    for k in range(length):
        row = np.concatenate([pictures[min(k, len(pictures) - 1)] for pictures in films], axis=1)
        size = (MOVING_SIZE[0] * len(films), MOVING_SIZE[1])
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
