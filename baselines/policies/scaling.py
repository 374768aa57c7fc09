"""How a policy scales the numbers that it reads: a value that is stored with it.

It belongs to the policy and not to its weights: an average of models that scale their inputs
differently would read numbers as no robot wrote them. Robots whose models are to be merged share
one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import pydantic

from fleet_tools.baselines.policies.layout import Layout, kind
from fleet_tools.config.values import NonNegative, Number, Value

if TYPE_CHECKING:
    from fleet_tools.dataset.normalization import Statistics


class Scaling(Value):
    """What is subtracted from each entry that no encoder reads, and what it is then divided by.

    Attributes:
        mean, std: By the entry's name, a number for each of its own, in row-major order. A
            deviation of 0 divides nothing.
    """

    mean: dict[str, tuple[Number, ...]]
    std: dict[str, tuple[NonNegative, ...]]

    @pydantic.model_validator(mode="after")
    def _pairs(self) -> Self:
        sizes = [{name: len(row) for name, row in rows.items()} for rows in (self.mean, self.std)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"means {sizes[0]} and standard deviations {sizes[1]} are no pairs")
        return self

    @classmethod
    def of(cls, statistics: Mapping[str, "Statistics"]) -> Self:
        """Takes what `dataset.normalization.normalization_of(samples).observation` says.

        A number that never changed is only centred, as `Statistics.normalize` does, too: its
        deviation may be an error of rounding. Of clouds it takes nothing: `PointNet` has a unit.
        """
        read = {name: its for name, its in statistics.items() if not its.cloud}
        return cls(
            mean={name: its.mean for name, its in read.items()},
            std={
                name: tuple(np.where(np.equal(its.min, its.max), 0.0, its.std).tolist())
                for name, its in read.items()
            },
        )

    @classmethod
    def identity(cls, read: Layout) -> Self:
        """Returns the one that leaves every number as it is."""
        sizes = {
            name: int(np.prod(array.shape))
            for name, array in read.items()
            if kind(name, array) == "state"
        }
        return cls(
            mean={name: (0.0,) * size for name, size in sizes.items()},
            std={name: (1.0,) * size for name, size in sizes.items()},
        )

    def arrays(self, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns what is subtracted from some entries, one after another, and then divided by.

        Args:
            names: Of the entries.

        Returns:
            Twice (n,) float32.
        """
        mean, std = (
            np.array([number for name in names for number in rows[name]], np.float32)
            for rows in (self.mean, self.std)
        )
        return mean, np.where(std == 0, np.float32(1), std)
