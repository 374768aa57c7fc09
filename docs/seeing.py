"""Makes the README's picture of what cameras see, from real runs: `python docs/seeing.py`.

A row for each task, in the middle of the work. From the left: colour, depth and segmentation of
the overhead camera, the same of the wrist's, and the fused point cloud.
"""

from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import fleet_tools  # noqa: F401
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK
from fleet_tools.perception.third_person_view import look_at

SHOTS = [("Hammer", 3, 11), ("Wrench", 4, 16), ("Spatula", 2, 30), ("Knife", 5, 18)]
"""Task, seed of the scene, and after how many steps."""

SIZE = (240, 180)
SEGMENTS = np.uint8([[20, 24, 32], [120, 124, 132], [230, 70, 50], [40, 110, 230]])
"""Colours of background, robot, tool and object."""


def main() -> None:
    """Writes `seeing.png` beside this file."""
    rows = [np.concatenate(row(*shot), axis=1) for shot in SHOTS]
    picture = Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE)
    picture.save(Path(__file__).parent / "seeing.png", optimize=True)


def row(task: str, seed: int, steps: int) -> list[np.ndarray]:
    """Returns the pictures of one task, (height, width, 3) uint8 each."""
    seen = [observe(task, seed, steps, mode) for mode in ("rgbd", "point_cloud")]
    images, cloud = seen[0], seen[1]["point_cloud"]
    pictures = []
    for camera in ("overhead", "wrist"):
        pictures.append(images[f"{camera}_rgb"])
        pictures.append(gray(images[f"{camera}_depth"]))
        pictures.append(SEGMENTS[images[f"{camera}_segmentation"]])
    return [*pictures, draw(cloud, images["end_effector_pose"])]


def observe(task: str, seed: int, steps: int, mode: str) -> dict[str, np.ndarray]:
    """Runs the expert for some steps, and returns what is observed then."""
    env = gymnasium.make(f"FleetTools/{task}-v0", obs_mode=mode, camera_size=SIZE)
    observation, _ = env.reset(seed=seed)
    expert = ExpertPolicy(env)
    expert.reset()
    for _ in range(steps):
        observation, *_, info = env.step(expert.act(observation))
    print(f"{task}, {mode}, after {steps} steps: {info['outcome']}")
    env.close()
    return observation


def gray(depth: np.ndarray) -> np.ndarray:
    """Near is bright; what has no depth is black."""
    known = np.isfinite(depth) & (depth > 0)
    near, far = depth[known].min(), depth[known].max()
    shade = np.where(known, 255 - 200 * (np.where(known, depth, near) - near) / (far - near), 0)
    return np.repeat(np.uint8(shade)[..., None], 3, axis=2)


def draw(cloud: np.ndarray, X_WE: np.ndarray) -> np.ndarray:
    """Draws a cloud of the end effector as it is seen from the side, from before the robot."""
    width, height = SIZE
    p_W = cloud[:, :3] @ X_WE[:, :3].T + X_WE[:, 3]
    middle = p_W[cloud[:, 3] != 0].mean(axis=0)
    X_WC = look_at(tuple(np.add(middle, (0.45, -0.45, 0.35))), tuple(middle))
    p_C = X_WC.inverse().multiply(p_W.T.astype(float)).T
    picture = np.full((height, width, 3), 250, np.uint8)
    order = np.argsort(-p_C[:, 2])
    for (u, v), mask in zip(
        Pinhole.from_field_of_view(width, height, 24).project(p_C)[order].astype(int),
        cloud[order, 3],
        strict=True,
    ):
        if mask in (TOOL_MASK, OBJECT_MASK) and 1 <= u < width - 1 and 1 <= v < height - 1:
            picture[v : v + 2, u : u + 2] = SEGMENTS[2 if mask == TOOL_MASK else 3]
    return picture


if __name__ == "__main__":
    main()
