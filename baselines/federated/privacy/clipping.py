"""Changes of bounded norm, and Gaussian noise: what a robot does for differential privacy.

As in McMahan et al., "Learning Differentially Private Recurrent Language Models" (2018): the whole
change of a robot is scaled to a bounded norm, and noise in proportion to the bound is added.
"""

import math
from collections.abc import Mapping

import numpy as np

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError


def clip(values: Mapping[str, np.ndarray], norm: float) -> tuple[dict[str, np.ndarray], float]:
    """Returns tensors scaled by a common factor, so that their norm is at most `norm`.

    Args:
        values: Finite float32 tensors by name.
        norm: Largest L2 norm over all tensors, up to the rounding of float32; positive.

    Returns:
        float32 tensors, and the factor, at most 1.

    Raises:
        ConfigError: The norm is not positive and finite.
        MessageError: A tensor holds NaN or infinity.
    """
    if not (math.isfinite(norm) and norm > 0):
        raise ConfigError(f"The norm to clip to is {norm}; expected: positive and finite.")
    given = l2_norm(values)
    factor = 1.0 if given <= norm else norm / given
    scaled = {name: np.asarray(factor * t, np.float32) for name, t in values.items()}
    return scaled, factor


def l2_norm(values: Mapping[str, np.ndarray]) -> float:
    """Returns the L2 norm over all tensors.

    Raises:
        MessageError: A tensor holds NaN or infinity.
    """
    for name, tensor in values.items():
        if not np.isfinite(tensor).all():
            raise MessageError(f"{name!r} holds NaN or infinity, so that it has no norm.")
    return math.sqrt(sum(float(np.sum(np.square(t, dtype=np.float64))) for t in values.values()))


def gaussian_noise(
    values: Mapping[str, np.ndarray], std: float, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Returns independent Gaussian noise in the shapes of tensors, drawn in the order of names.

    Noise protects from those only who do not know the generator's state: its seed is the robot's
    secret, not what the server sent it.

    Args:
        values: Tensors by name.
        std: Standard deviation, at least 0.
        generator: Source of the noise.

    Returns:
        float32 tensors by name.

    Raises:
        ConfigError: The standard deviation is negative or not finite.
    """
    if not (math.isfinite(std) and std >= 0):
        raise ConfigError(f"Noise of the standard deviation {std}; expected: finite, at least 0.")
    return {
        name: np.asarray(std * generator.standard_normal(np.shape(values[name])), np.float32)
        for name in sorted(values)
    }
