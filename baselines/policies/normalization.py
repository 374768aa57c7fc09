"""How a policy scales the numbers that it reads: a value that is stored with it.

It belongs to the policy and not to its weights: an average of models that scale their inputs
differently would read numbers as no robot wrote them. Robots whose models are to be merged share
one.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
import pydantic

from fleet_tools.baselines.policies.layout import Layout, kind
from fleet_tools.values import NonNegative, Number, Value

STILL = 1e-6
"""Standard deviations below this are noise of rounding; what has one is centred, not scaled."""


class Normalization(Value):
    """Mean and standard deviation of each entry that a policy reads as it is.

    Attributes:
        mean, std: By the entry's name, a number for each of its own, in row-major order.
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
    def of(cls, mean: Mapping[str, np.ndarray], std: Mapping[str, np.ndarray]) -> Self:
        """Takes statistics of data, arrays in the shapes of the entries, as float32."""
        return cls(mean=_rows(mean), std=_rows(std))

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
        return mean, np.where(std < STILL, np.float32(1), std)


def _rows(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(np.ravel(a).astype(np.float32).tolist()) for name, a in arrays.items()}
