"""Scaling of the numbers that a policy reads, a value that is stored with the policy.

Scaling belongs to a policy and not to its weights: an average of models that scale their inputs
differently would read numbers as none of its models does. Robots whose models are to be merged
share one scaling.
"""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import pydantic

from fleet_tools.baselines.policies.layout import Layout, kind_of
from fleet_tools.config.values import NonNegative, Number, Value

if TYPE_CHECKING:
    from fleet_tools.dataset.normalization import Statistics


class Scaling(Value):
    """Offset and divisor of each entry that no encoder reads.

    Attributes:
        mean: Subtracted numbers in row-major order, by the entry's name.
        std: Divisors likewise; 0 stands for no division.
    """

    mean: dict[str, tuple[Number, ...]]
    std: dict[str, tuple[NonNegative, ...]]

    @pydantic.model_validator(mode="after")
    def _same_sizes(self) -> Self:
        sizes = [{name: len(row) for name, row in rows.items()} for rows in (self.mean, self.std)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"the sizes of mean, {sizes[0]}, are not those of std, {sizes[1]}")
        return self

    @classmethod
    def of(cls, statistics: Mapping[str, "Statistics"]) -> Self:
        """Returns the scaling by the statistics of data.

        A number that never changes is only centred, as in `Statistics.normalize`, because its
        deviation may be a rounding error. Point clouds are left out; `PointNetConfig` has a unit.

        Args:
            statistics: Statistics by the entry's name, such as
                `dataset.normalization.normalization_of(samples).observation`.
        """
        read = {name: entry for name, entry in statistics.items() if not entry.cloud}
        return cls(
            mean={name: entry.mean for name, entry in read.items()},
            std={
                name: tuple(np.where(np.equal(entry.min, entry.max), 0.0, entry.std).tolist())
                for name, entry in read.items()
            },
        )

    @classmethod
    def identity(cls, read: Layout) -> Self:
        """Returns the scaling that changes no number of the given entries."""
        sizes = {
            name: int(np.prod(array.shape))
            for name, array in read.items()
            if kind_of(name, array) == "state"
        }
        return cls(
            mean={name: (0.0,) * size for name, size in sizes.items()},
            std={name: (1.0,) * size for name, size in sizes.items()},
        )

    def rounded_digest(self) -> str:
        """Returns a hash of the numbers as networks use them, in float32."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.mean):
            digest.update(name.encode())
            for array in self.arrays([name]):
                digest.update(array.tobytes())
        return digest.hexdigest()

    def arrays(self, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the offsets and divisors of several entries, one after another.

        Args:
            names: Names of the entries.

        Returns:
            Offsets (n,) and divisors (n,), float32.
        """
        mean, std = (
            np.array([number for name in names for number in rows[name]], np.float32)
            for rows in (self.mean, self.std)
        )
        return mean, np.where(std == 0, np.float32(1), std)
