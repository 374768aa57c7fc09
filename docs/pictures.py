"""Makes the picture of the README from real runs: `python docs/pictures.py`."""

from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import fleet_tools  # noqa: F401
from fleet_tools.experts.policy import ExpertPolicy

SHOTS = [  # task, seed, tool, object, table
    ("Hammer", 3, "claw", "round_nail", "wood"),
    ("Wrench", 4, "open_end", "hex_nut", "stone"),
    ("Spatula", 2, "turner", "pancake", "tiles"),
    ("Knife", 5, "chef", "gouda", "cloth"),
]
AS_FILED = {"tool_tint": (1, 1, 1), "object_tint": (1, 1, 1), "table_tint": (1, 1, 1)}


def main() -> None:
    """Writes `tools.png` beside this file: begin and end of an episode of every task."""
    pairs = [np.concatenate(shots(*arguments), axis=1) for arguments in SHOTS]
    rows = [np.concatenate(pairs[k : k + 2], axis=1) for k in (0, 2)]
    picture = Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE)
    picture.save(Path(__file__).parent / "tools.png", optimize=True)


def shots(task: str, seed: int, tool: str, object: str, table: str) -> list[np.ndarray]:
    """Runs the expert, and returns the pictures at the episode's beginning and end."""
    env = gymnasium.make(f"FleetTools/{task}-v0", tool=tool, object=object, render_mode="rgb_array")
    env.reset(seed=seed)
    scene = env.unwrapped.scene.model_copy(update={**AS_FILED, "table_texture": table})
    observation, info = env.reset(options={"scene": scene})
    pictures = [env.render()]
    expert = ExpertPolicy(env)
    expert.reset()
    while info["outcome"] == "running":
        observation, *_, info = env.step(expert.act(observation))
    print(f"{task}, {tool} on {object}: {info['outcome']}")
    pictures.append(env.render())
    env.close()
    return [picture[60:460, 170:530] for picture in pictures]


if __name__ == "__main__":
    main()
