"""Errors of depth cameras in one episode: noise and calibration.

Errors lie along a pixel's ray, and edges are displaced. They are correlated over neighbouring
pixels, as the errors of matching windows are: unit normals at the nodes of a grid, interpolated
linearly and scaled so that each pixel's variance is 1. They are a function of the generator and the
pixel, whatever else is in the image.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.cameras import ActiveStereo, Camera, Sensor
from fleet_tools.config.distributions import Distribution, sample
from fleet_tools.config.geometry import Pose
from fleet_tools.perception.camera_view import Hits, Pinhole
from fleet_tools.utils.compiled import compiled

STEEPEST_DEG = 80.0
"""Inclination to the image plane beyond which two pixels do not lie on one face (chosen)."""


@dataclass(frozen=True)
class AxialNoise:
    """The standard deviation of depths: sigma_z(z) = floor + growth max(z - nearest, 0)^2.

    Attributes:
        floor_m: Standard deviation at the nearest distance, m.
        growth_per_m: Growth with the square of the distance beyond it, 1/m.
        nearest_m: The nearest distance, m.
    """

    floor_m: float
    growth_per_m: float
    nearest_m: float

    @classmethod
    def of_disparity(cls, sigma_px: float, focal_px: float, baseline_m: float) -> "AxialNoise":
        """Returns the noise of a stereo camera, to first order: sigma_z = z^2 / (f b) sigma_d.

        Args:
            sigma_px: Standard deviation of disparities.
            focal_px: Focal length, in pixels.
            baseline_m: Distance between the imagers, m.
        """
        return cls(0.0, sigma_px / (focal_px * baseline_m), 0.0)

    def sigma_m(self, depths: np.ndarray) -> np.ndarray:
        """Returns the standard deviation at depths, m."""
        beyond = np.maximum(depths - self.nearest_m, 0.0)
        return self.floor_m + self.growth_per_m * beyond**2


@dataclass(frozen=True)
class DepthNoise:
    """The noise of depth images of one resolution.

    Attributes:
        axial: Noise along the rays.
        lateral_px: Standard deviation of the displacement of edges along each axis, pixels.
        spacing_px: Distance of the nodes of the grid: errors of pixels that are twice as far apart
            are independent.
    """

    axial: AxialNoise
    lateral_px: float
    spacing_px: float

    def read(
        self,
        image: np.ndarray,
        pixels: np.ndarray,
        focal_px: float,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Returns the depths that pixels read, (n,), m; NaN where they read nothing.

        A pixel reads the depth of the pixel to which it is displaced; nothing, if that is not known
        or beyond an edge.

        Args:
            image: (height, width), true depths, m; NaN where they are not known.
            pixels: (n,), indices of pixels of known depth, counted along the rows of the image.
            focal_px: Focal length, in pixels.
            generator: Of the errors.
        """
        offset = generator.random(2)
        shape = np.ceil(np.array(image.shape) / self.spacing_px).astype(int) + 2
        nodes = generator.standard_normal((3, *shape), np.float32)
        steepest = np.tan(np.deg2rad(STEEPEST_DEG)) / focal_px
        depths, errors = displaced(
            image, pixels, nodes, offset, self.spacing_px, self.lateral_px, steepest
        )
        return depths + self.axial.sigma_m(depths) * errors


@compiled
def unit_error(u, v, nodes, offset, spacing):
    """Returns an error of unit variance at a pixel.

    Args:
        u: Column.
        v: Row.
        nodes: (rows, columns), unit normals.
        offset: (2,), row and column of the first pixel in the grid.
        spacing: Distance of the nodes, pixels.
    """
    y, x = offset[0] + v / spacing, offset[1] + u / spacing
    i, j = int(y), int(x)
    b, a = y - i, x - j
    upper = (1.0 - a) * nodes[i, j] + a * nodes[i, j + 1]
    lower = (1.0 - a) * nodes[i + 1, j] + a * nodes[i + 1, j + 1]
    variance = ((1.0 - a) ** 2 + a**2) * ((1.0 - b) ** 2 + b**2)
    return ((1.0 - b) * upper + b * lower) / np.sqrt(variance)


@compiled
def displaced(image, pixels, nodes, offset, spacing, lateral, steepest):
    """Returns the depths of displaced pixels, and an error of unit variance for each.

    Args:
        image: (height, width), depths, m; NaN where they are not known.
        pixels: (n,), indices of pixels, counted along the rows.
        nodes: (3, rows, columns), unit normals, of the error and the displacements along u, v.
        offset: See `unit_error`.
        spacing: Likewise.
        lateral: Standard deviation of the displacement along each axis, pixels.
        steepest: Largest relative change of depth from a pixel to the next on one face.

    Returns:
        (n,), depths, m; NaN where a displaced pixel is not known, or not on the same face.
        (n,), errors.
    """
    height, width = image.shape
    depths, errors = np.empty(len(pixels)), np.empty(len(pixels))
    for n in range(len(pixels)):
        u, v = pixels[n] % width, pixels[n] // width
        errors[n] = unit_error(u, v, nodes[0], offset, spacing)
        u_read = u + lateral * unit_error(u, v, nodes[1], offset, spacing)
        v_read = v + lateral * unit_error(u, v, nodes[2], offset, spacing)
        i = int(min(max(np.rint(v_read), 0.0), height - 1.0))
        j = int(min(max(np.rint(u_read), 0.0), width - 1.0))
        z, z_read = image[v, u], image[i, j]
        distance = np.sqrt(float((i - v) ** 2 + (j - u) ** 2))
        on_face = abs(z_read - z) <= steepest * z * distance  # not so if either is NaN
        depths[n] = z_read if on_face else np.nan
    return depths, errors


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
        cls,
        sensor: Sensor,
        name: str,
        camera: Camera,
        pinhole: Pinhole,
        seed: int,
        error_scale: float = 1.0,
    ) -> "DepthSensor":
        """Draws a camera's errors for an episode; a pure function of its arguments.

        Args:
            sensor: What the task file says about their kind.
            name: Name of the camera.
            camera: What the task file says about it.
            pinhole: Intrinsics of the observed image.
            seed: Seed of the scene.
            error_scale: Factor of all errors, see `Scene.depth_error_scale`.
        """
        generator = _generator("calibration", name, seed)

        def draw(of: Distribution) -> float:
            return error_scale * float(sample(of, generator))

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
