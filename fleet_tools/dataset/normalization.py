"""Statistics of samples, by which policies normalize observations and actions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet_tools.config.values import Value
from fleet_tools.dataset.episode_file import OBSERVATIONS
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError
from fleet_tools.perception.point_cloud import ABSENT


class Statistics(Value):
    """Statistics of an array over many steps.

    Attributes:
        shape: Shape of mean, std, min and max, which are listed in C order: the array's, or (4,)
            for a point cloud, whose present points have equal weights.
        count: Number of steps; of present points for a point cloud.
        mean, min, max: Mean and extremes of each entry.
        std: Population standard deviation of each entry.
        cloud: Whether the array is a point cloud; its mask and absent points are not normalized.
    """

    shape: tuple[int, ...]
    count: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    min: tuple[float, ...]
    max: tuple[float, ...]
    cloud: bool = False

    def normalize(self, rows: Any) -> Any:
        """Returns (rows - mean) / std; entries that never change are only centred.

        Args:
            rows: (..., *shape), or (..., N, 4) for point clouds: an array or a tensor.
        """
        offset, scale = self._like(rows)
        return self._present(rows, (rows - offset) / scale)

    def _like(self, rows: Any) -> tuple[Any, Any]:
        """Returns offset and scale as arrays or tensors, like the rows."""
        constant = np.equal(self.min, self.max)  # whose std may be a rounding error
        offset, scale = np.array(self.mean), np.where(constant, 1.0, self.std)
        if self.cloud:
            offset[3], scale[3] = 0.0, 1.0
        make = getattr(rows, "new_tensor", lambda numbers: np.asarray(numbers, rows.dtype))
        return make(offset.reshape(self.shape)), make(scale.reshape(self.shape))

    def _present(self, rows: Any, changed: Any) -> Any:
        return changed * (rows[..., 3:] != ABSENT) if self.cloud else changed


class Normalization(Value):
    """Statistics of the observations and actions of some samples.

    Attributes:
        observation: Statistics of all steps by name; images have none.
        action: Statistics of the actions to imitate.
    """

    observation: dict[str, Statistics]
    action: Statistics


def normalization_of(samples: Samples) -> Normalization:
    """Computes the statistics of the samples' episodes, in one pass.

    Raises:
        DatasetError: A file cannot be read, holds numbers that are not finite, or there is no step
            to imitate.
    """
    sums: dict[str, _Moments] = {}
    layout = {name: spec for name, spec in samples.observation.items() if not spec.is_image}
    kinds = {f"{OBSERVATIONS}{name}": spec.kind for name, spec in layout.items()}
    for episode in samples.episodes:
        steps = episode.record.steps
        for name in (*kinds, "actions"):
            if steps == 0:
                continue
            rows = episode.rows(name)[:steps]
            if name == "actions":
                rows = episode.labels.actions(rows)[episode.imitate]
            entries = _entries(rows, kinds.get(name) == "points")
            if not np.isfinite(entries).all():
                raise DatasetError(
                    f"{episode.path} has NaN or infinity in {name!r}, so it has no mean. Choose "
                    "other `observations`."
                )
            if entries.shape[-1] > 0:
                moments = _Moments.of(entries)
                sums[name] = sums[name].merged(moments) if name in sums else moments
    if "actions" not in sums:
        raise DatasetError(
            "These samples have no steps to imitate, so they have no mean. Give datasets with "
            "steps of an expert."
        )
    return Normalization(
        observation={
            name: sums[f"{OBSERVATIONS}{name}"].statistics(cloud=spec.kind == "points")
            for name, spec in layout.items()
            if f"{OBSERVATIONS}{name}" in sums
        },
        action=sums["actions"].statistics(),
    )


def _entries(rows: np.ndarray, cloud: bool) -> np.ndarray:
    """Returns the values of each entry, (..., n); contiguous, so that NumPy sums pairwise."""
    if cloud:
        columns = np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]).T)
        present = columns[3] != ABSENT
        rows = (columns if present.all() else columns[:, present]).T
    return np.ascontiguousarray(np.moveaxis(rows, 0, -1), np.float64)


@dataclass(frozen=True)
class _Moments:
    """Count, mean, sum of squared deviations and extremes of entries, in double precision."""

    count: int
    mean: np.ndarray
    deviation: np.ndarray
    min: np.ndarray
    max: np.ndarray

    @classmethod
    def of(cls, entries: np.ndarray) -> "_Moments":
        mean = entries.mean(axis=-1)
        squares = np.square(entries - mean[..., None]).sum(axis=-1)
        return cls(entries.shape[-1], mean, squares, entries.min(axis=-1), entries.max(axis=-1))

    def merged(self, other: "_Moments") -> "_Moments":
        """Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm", 1979."""
        count = self.count + other.count
        apart = other.mean - self.mean
        return _Moments(
            count,
            self.mean + apart * (other.count / count),
            self.deviation + other.deviation + apart**2 * (self.count * other.count / count),
            np.minimum(self.min, other.min),
            np.maximum(self.max, other.max),
        )

    def statistics(self, cloud: bool = False) -> Statistics:
        numbers = {
            "mean": self.mean,
            "std": np.sqrt(self.deviation / self.count),
            "min": self.min,
            "max": self.max,
        }
        return Statistics(
            shape=self.mean.shape,
            count=self.count,
            cloud=cloud,
            **{name: tuple(array.ravel().tolist()) for name, array in numbers.items()},
        )
