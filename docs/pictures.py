"""Makes the pictures of the README from real runs: `python docs/pictures.py`."""

from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import fleet_tools  # noqa: F401
from fleet_tools.experts.policy import ExpertPolicy

SHOTS = [  # seed, step, tool, object
    (3, 0, "claw", "round_nail"),
    (3, None, "claw", "round_nail"),
    (11, 0, "mallet", "dowel_pin"),
    (11, None, "mallet", "dowel_pin"),
]


def main() -> None:
    """Writes `hammer.png` beside this file: begin and end of two episodes."""
    tiles = [shot(*arguments) for arguments in SHOTS]
    Image.fromarray(np.concatenate(tiles, axis=1)).save(Path(__file__).parent / "hammer.png")


def shot(seed: int, step: int | None, tool: str, object: str) -> np.ndarray:
    """Runs the expert to a step, or to the end, and returns the picture there."""
    env = gymnasium.make("FleetTools/Hammer-v0", tool=tool, object=object, render_mode="rgb_array")
    observation, info = env.reset(seed=seed)
    expert = ExpertPolicy(env)
    expert.reset()
    while info["outcome"] == "running" and step != 0:
        observation, *_, info = env.step(expert.act(observation))
        step = step - 1 if step is not None else None
    picture = env.render()[30:, 130:510]
    env.close()
    return picture


if __name__ == "__main__":
    main()
