"""Weights as one vector, and its numbers as integers of a few bits, rounded without bias.

Uniform stochastic quantization as in Suresh et al., "Distributed Mean Estimation with Limited
Communication" (2017), Section 2.2. Levels are symmetric about zero, so that zero is a level.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from fleet_merging.average import floating_tensors
from fleet_merging.errors import MessageError
from fleet_merging.symmetry.table import State
from fleet_tools.errors import ConfigError

BITS = (2, 4, 8, 16)
"""Numbers of bits that an integer may have."""

_BYTE = 8

_ROUNDING = 2.0**-23
"""Relative distance from a level within which a value is the level: the spacing of float32."""


def sizes(state: State) -> list[int]:
    """Returns the number of entries of each floating-point tensor, in the order of the state."""
    return [tensor.numel() for tensor in floating_tensors(state).values()]


def difference(state: State, reference: State) -> np.ndarray:
    """Returns the floating-point tensors of a state less a reference's.

    Args:
        state: Weights.
        reference: Weights of the same names and shapes.

    Returns:
        Shape (n,), float32, in the order of the reference.
    """
    parts = [
        (state[name].double() - tensor.double()).flatten().numpy()
        for name, tensor in floating_tensors(reference).items()
    ]
    return np.concatenate(parts).astype(np.float32)


def displaced(reference: State, vector: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns a reference with a vector added to its floating-point tensors.

    Args:
        reference: Weights.
        vector: Shape (n,), float64, in the order of the reference.
    """
    weights = dict(reference)
    parts = split(vector, sizes(reference))
    for (name, tensor), part in zip(floating_tensors(reference).items(), parts, strict=True):
        change = torch.from_numpy(np.array(part)).view(tensor.shape)
        weights[name] = (tensor.double() + change).to(tensor)
    return weights


def split(vector: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """Returns the parts of a vector, one for each tensor."""
    return np.split(vector, np.cumsum(counts)[:-1])


def quantize(
    values: np.ndarray, largest: float, bits: int, generator: np.random.Generator
) -> np.ndarray:
    """Returns integers with levels that equal the values in expectation.

    A level k is the value k * largest / `top_level(bits)`. A value between two levels is rounded to
    either at random, with the value as mean. A value within float32's spacing of a level becomes
    that level.

    Args:
        values: Finite float32 of any shape.
        largest: The largest magnitude that is represented; larger values saturate. 0 gives zeros.
        bits: Bits of an integer, one of `BITS`.
        generator: Source of the rounding.

    Returns:
        int64 of the same shape, from -`top_level(bits)` to `top_level(bits)`.

    Raises:
        ConfigError: There is no such number of bits.
        MessageError: A value is NaN or infinite, or `largest` is negative or not finite.
    """
    top = top_level(bits)
    _check_largest(largest)
    if not np.isfinite(values).all():
        raise MessageError(f"Of {np.size(values)} values to quantize, some are NaN or infinite.")
    if largest == 0:
        return np.zeros(np.shape(values), np.int64)
    with np.errstate(over="ignore"):  # saturates
        scaled = np.clip(np.asarray(values, np.float64) / largest, -1, 1) * top
    nearest = np.rint(scaled)
    below = np.floor(scaled)
    rounded = below + (generator.random(scaled.shape) < scaled - below)
    is_level = np.abs(scaled - nearest) <= _ROUNDING * np.abs(nearest)
    return np.where(is_level, nearest, rounded).astype(np.int64)


def dequantize(integers: np.ndarray, largest: float, bits: int) -> np.ndarray:
    """Returns the values of levels.

    Args:
        integers: Integers of any shape.
        largest: The largest magnitude that was represented.
        bits: Bits of an integer in `quantize`, one of `BITS`.

    Returns:
        float32 of the same shape.

    Raises:
        ConfigError: There is no such number of bits.
        MessageError: `largest` is negative or not finite.
    """
    _check_largest(largest)
    return np.asarray(np.asarray(integers) / top_level(bits) * largest, np.float32)


def pack(integers: np.ndarray, bits: int) -> bytes:
    """Returns integers as bytes without gaps: integer j begins at bit j * bits, lowest bits first.

    Args:
        integers: Integers (n,) as `quantize` returns them.
        bits: Bits of an integer, one of `BITS`.

    Returns:
        ceil(n * bits / 8) bytes; the remaining bits of the last one are zero.

    Raises:
        ConfigError: There is no such number of bits.
        MessageError: An integer does not fit.
    """
    top = top_level(bits)
    if np.abs(integers).max(initial=0) > top + 1 or np.max(integers, initial=0) > top:
        raise MessageError(f"Of {np.size(integers)} integers, some do not fit {bits} bits.")
    if bits >= _BYTE:
        return np.asarray(integers).astype(f"<i{bits // _BYTE}").tobytes()
    per_byte = _BYTE // bits
    fields = np.zeros(-(-np.size(integers) // per_byte) * per_byte, np.uint8)
    fields[: np.size(integers)] = np.asarray(integers) & (2**bits - 1)
    shifted = fields.reshape(-1, per_byte) << (bits * np.arange(per_byte)).astype(np.uint8)
    return np.bitwise_or.reduce(shifted, axis=1, dtype=np.uint8).tobytes()


def unpack(data: bytes, bits: int, count: int) -> np.ndarray:
    """Returns the integers that `pack` packed, int64 (count,).

    Raises:
        ConfigError: There is no such number of bits.
            MessageError: The number of bytes does not fit so many integers, or the remaining bits
                of the last byte are not zero.
    """
    top_level(bits)
    if len(data) != -(-count * bits // _BYTE):
        raise MessageError(f"{len(data)} bytes do not hold {count} integers of {bits} bits.")
    if bits >= _BYTE:
        return np.frombuffer(data, f"<i{bits // _BYTE}").astype(np.int64)
    shifts = (bits * np.arange(_BYTE // bits)).astype(np.uint8)
    fields = (np.frombuffer(data, np.uint8)[:, None] >> shifts).reshape(-1) & (2**bits - 1)
    if fields[count:].any():
        raise MessageError(f"Beyond {count} integers of {bits} bits, the last byte is not zero.")
    integers = fields[:count].astype(np.int64)
    return integers - 2**bits * (integers >= 2 ** (bits - 1))


def top_level(bits: int) -> int:
    """Returns the largest level of a number of bits, 2**(bits - 1) - 1.

    Raises:
        ConfigError: There is no such number of bits.
    """
    if bits not in BITS:
        raise ConfigError(f"Values are quantized to {bits!r} bits; possible: {BITS}.")
    return 2 ** (bits - 1) - 1


def _check_largest(largest: float) -> None:
    if not (math.isfinite(largest) and largest >= 0):
        raise MessageError(
            f"The largest magnitude to quantize is {largest}; expected: finite and at least 0."
        )
