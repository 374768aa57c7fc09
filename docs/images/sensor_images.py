"""Makes the image of cameras with errors, from real runs: `python docs/images/sensor_images.py`.

It has a column for each kind of depth camera: ideal, active stereo, structured light. Above, the
tool's points of one scene, seen edge-on. Below, what the overhead camera measures: the depth,
bright where it is near, then the errors of depth from -5 mm (blue) to 5 mm (red), black where
nothing is measured.
"""

from pathlib import Path
from typing import Any

import numpy as np
from camera_images import depth_image
from PIL import Image

from fleet_tools.config.cameras import SENSORS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.perception.point_cloud import TOOL_MASK

TASK, SEED = "spatula", 2
CROP = (slice(40, 220), slice(40, 280))
"""Rows and columns of the depth image that are shown."""
LARGEST_M = 0.005
"""Error with the full colour, m."""


def main(folder: Path = Path(__file__).parent) -> None:
    """Writes `sensors.png`.

    Args:
        folder: Its folder.
    """
    clouds = [observe(sensors, "point_cloud", cloud_size=[2048, 1]) for sensors in SENSORS]
    above = edge_on_images([each["point_cloud"] for each in clouds])
    rgbd = [observe(sensors, "rgbd", channels=["depth"]) for sensors in SENSORS]
    true, *measured = (each["overhead_depth"][CROP] for each in rgbd)
    below = [depth_image(true), *(error_image(each, true) for each in measured)]
    image = np.concatenate([np.concatenate(row, axis=1) for row in (above, below)])
    quantized = Image.fromarray(image).quantize(256, dither=Image.Dither.NONE)
    quantized.save(folder / "sensors.png", optimize=True)


def observe(sensors: str, obs_mode: str, **kwargs: Any) -> dict[str, np.ndarray]:
    """Returns the first observation of the scene."""
    env = EnvSpec.of(task=TASK, obs_mode=obs_mode, sensors=sensors, **kwargs).make_tool_use()
    observation, _ = env.reset(seed=SEED)
    env.close()
    return observation


def edge_on_images(clouds: list[np.ndarray]) -> list[np.ndarray]:
    """Returns an image of the tool in each cloud, along the first one's shorter flat axis."""
    tools = [cloud[cloud[:, 3] == TOOL_MASK, :3] for cloud in clouds]
    middle = (tools[0].min(axis=0) + tools[0].max(axis=0)) / 2
    _, _, axes = np.linalg.svd(tools[0] - tools[0].mean(axis=0), full_matrices=False)
    height, width = (edge.stop - edge.start for edge in CROP)
    scale = 0.9 * width / np.ptp(tools[0] @ axes[0])
    images = []
    for points in tools:
        across, up = scale * (points - middle) @ axes[0], scale * (points - middle) @ axes[2]
        image = np.full((height, width, 3), 250, np.uint8)
        v, u = (height / 2 - up).astype(int), (width / 2 + across).astype(int)
        inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
        image[v[inside], u[inside]] = (230, 70, 50)
        images.append(image)
    return images


def error_image(measured: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Returns an image of the errors of depths, (height, width, 3) uint8."""
    known = np.isfinite(true) & (measured > 0)
    share = np.zeros(true.shape)
    share[known] = np.clip((measured[known] - true[known]) / LARGEST_M, -1, 1)
    fading = 1 - np.abs(share)
    rgb = np.stack([np.where(share > 0, 1, fading), fading, np.where(share < 0, 1, fading)], axis=2)
    return (255 * np.where(known[..., None], rgb, 0)).astype(np.uint8)


if __name__ == "__main__":
    main()
