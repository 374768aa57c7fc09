"""Depth cameras as they are in one episode: their noise, and the error of their calibration."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.cameras import ActiveStereo, Camera, Sensor
from fleet_tools.config.distributions import Distribution, sample
from fleet_tools.config.geometry import Pose
from fleet_tools.perception.depth_noise import AxialNoise, DepthNoise
from fleet_tools.perception.hits import Hits
from fleet_tools.perception.pinhole import Pinhole


@dataclass(frozen=True, eq=False)
class DepthSensor:
    """A depth camera with errors, which are drawn from the scene's seed.

    Attributes:
        name: Name of the camera.
        seed: Seed of the scene.
        pinhole: Intrinsics of the observed image.
        range_m: Nearest and farthest measured depth.
        noise: Noise of the observed image.
        X_CK: Pose of the camera as calibrated, K, in the camera as it is.
    """

    name: str
    seed: int
    pinhole: Pinhole
    range_m: tuple[float, float]
    noise: DepthNoise
    X_CK: RigidTransform

    @classmethod
    def draw(
        cls, sensor: Sensor, name: str, camera: Camera, pinhole: Pinhole, seed: int
    ) -> "DepthSensor":
        """Draws a camera's errors for an episode; a pure function of its arguments.

        Args:
            sensor: What the task file says about their kind.
            name: Name of the camera.
            camera: What the task file says about it.
            pinhole: Intrinsics of the observed image.
            seed: Seed of the scene.
        """
        generator = _generator("calibration", name, seed)

        def draw(of: Distribution) -> float:
            return float(sample(of, generator))

        error = sensor.calibration_error
        (x, y, z), (roll, pitch, yaw) = map(draw, error.translation_m), map(draw, error.rpy_deg)
        X_CK = Pose(translation_m=(x, y, z), rpy_deg=(roll, pitch, yaw))
        scale = pinhole.height / sensor.rows
        if isinstance(sensor, ActiveStereo):
            axial = AxialNoise.of_disparity(
                draw(sensor.disparity_noise_px),
                pinhole.focal_px / scale,
                getattr(sensor.baseline_m, camera.frame),
            )
        else:
            axial = AxialNoise(
                draw(sensor.axial_floor_m), draw(sensor.axial_growth_per_m), sensor.axial_nearest_m
            )
        noise = DepthNoise(axial, scale * draw(sensor.lateral_noise_px), scale * sensor.window_px)
        return cls(name, seed, pinhole, camera.depth_range_m, noise, X_CK.to_transform())

    def read_image(self, depth: np.ndarray, step: int) -> np.ndarray:
        """Returns a depth image with errors; pixels that read nothing are 0.

        Args:
            depth: (height, width) float32, m; 0 and infinity are out of range.
            step: Control step of the episode.
        """
        pixels = np.flatnonzero((depth > 0) & np.isfinite(depth))
        known = np.full_like(depth, np.nan)
        known.ravel()[pixels] = depth.ravel()[pixels]
        read = self._read(known, pixels, step)
        image = depth.copy()
        image.ravel()[pixels] = np.where(np.isnan(read), 0, read)
        return image

    def read_hits(self, parts: Mapping[int, Hits], step: int) -> dict[int, Hits]:
        """Returns what it reads of the parts that it sees; other surfaces count as beyond an edge.

        Args:
            parts: What an ideal camera sees, by segment.
            step: Control step of the episode.
        """
        image = np.full((self.pinhole.height, self.pinhole.width), np.nan, np.float32)
        for hits in parts.values():
            image.ravel()[hits.pixels] = hits.depths
        pixels = np.concatenate([hits.pixels for hits in parts.values()])
        depths = self._read(image, pixels, step)
        ends = np.cumsum([len(hits.pixels) for hits in parts.values()])[:-1]
        read = {}
        for segment, p, z in zip(
            parts, np.split(pixels, ends), np.split(depths, ends), strict=True
        ):
            kept = ~np.isnan(z)
            read[segment] = Hits(p[kept], z[kept])
        return read

    def _read(self, image: np.ndarray, pixels: np.ndarray, step: int) -> np.ndarray:
        """Returns the depths that pixels read, float32; NaN where they read nothing."""
        generator = _generator("depth", self.name, self.seed, step)
        depths = self.noise.read(image, pixels, self.pinhole.focal_px, generator)
        depths = depths.astype(np.float32)
        near, far = self.range_m
        return np.where((depths >= near) & (depths <= far), depths, np.nan)


def _generator(what: str, name: str, *seeds: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(f"sensors {what} {name}".encode()), *seeds])
