"""Makes the image of what cameras see, from real runs: `python docs/images/camera_images.py`.

It has a row for each task, in the middle of an episode. From the left: colour, depth and
segmentation of the overhead camera, the same of the wrist camera, and the fused point cloud.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.camera_view import Pinhole
from fleet_tools.perception.display import look_at
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK

MOMENTS = [("hammer", 3, 11), ("wrench", 4, 16), ("spatula", 2, 30), ("knife", 5, 18)]
"""Task, seed of the scene, and number of steps."""

SIZE = (240, 180)
"""Width and height of each image."""

SEGMENT_COLORS = np.array(
    [[20, 24, 32], [120, 124, 132], [230, 70, 50], [40, 110, 230]], dtype=np.uint8
)
"""Colours of background, robot, tool and object."""


def main(folder: Path = Path(__file__).parent) -> None:
    """Writes `seeing.png`.

    Args:
        folder: Its folder.
    """
    rows = [np.concatenate(task_images(*moment), axis=1) for moment in MOMENTS]
    image = Image.fromarray(np.concatenate(rows)).quantize(256, dither=Image.Dither.NONE)
    image.save(folder / "seeing.png", optimize=True)


def task_images(task: str, seed: int, steps: int) -> list[np.ndarray]:
    """Returns the images of one task, (height, width, 3) uint8 each."""
    rgbd = observe(task, seed, steps, "rgbd")
    cloud = observe(task, seed, steps, "point_cloud")["point_cloud"]
    images = []
    for camera in ("overhead", "wrist"):
        images.append(rgbd[f"{camera}_rgb"])
        images.append(depth_image(rgbd[f"{camera}_depth"]))
        images.append(SEGMENT_COLORS[rgbd[f"{camera}_segmentation"]])
    return [*images, cloud_image(cloud, rgbd["end_effector_pose"])]


def observe(task: str, seed: int, steps: int, obs_mode: str) -> dict[str, np.ndarray]:
    """Runs the expert for some steps, and returns the last observation."""
    env = EnvSpec.of(task=task, obs_mode=obs_mode, camera_size=SIZE).make_tool_use()
    observation, info = env.reset(seed=seed)
    expert = ExpertPolicy(env)
    expert.reset()
    for _ in range(steps):
        observation, *_, info = env.step(expert.act(observation))
    print(f"{task}, {obs_mode}, after {steps} steps: {info['outcome']}")
    env.close()
    return observation


def depth_image(depth: np.ndarray) -> np.ndarray:
    """Returns a grey image of depths: bright is near, black is no measurement."""
    known = np.isfinite(depth) & (depth > 0)
    near, far = depth[known].min(), depth[known].max()
    shade = np.where(known, 255 - 200 * (np.where(known, depth, near) - near) / (far - near), 0)
    return np.repeat(shade.astype(np.uint8)[..., None], 3, axis=2)


def cloud_image(cloud: np.ndarray, X_WE: np.ndarray) -> np.ndarray:
    """Returns an image of a point cloud, seen from the side in front of the robot.

    Args:
        cloud: Points in the end effector's frame and their masks, (N, 4).
        X_WE: Pose of the end effector, (3, 4).
    """
    width, height = SIZE
    p_W = cloud[:, :3] @ X_WE[:, :3].T + X_WE[:, 3]
    middle = p_W[cloud[:, 3] != 0].mean(axis=0)
    X_WC = look_at(tuple(np.add(middle, (0.45, -0.45, 0.35))), tuple(middle))
    p_C = X_WC.inverse().multiply(p_W.T.astype(float)).T
    image = np.full((height, width, 3), 250, np.uint8)
    order = np.argsort(-p_C[:, 2])  # near points cover far ones
    pixels = Pinhole.from_field_of_view(width, height, 24).project(p_C)[order].astype(int)
    for (u, v), mask in zip(pixels, cloud[order, 3], strict=True):
        if mask in (TOOL_MASK, OBJECT_MASK) and 1 <= u < width - 1 and 1 <= v < height - 1:
            image[v : v + 2, u : u + 2] = SEGMENT_COLORS[2 if mask == TOOL_MASK else 3]
    return image


if __name__ == "__main__":
    main()
