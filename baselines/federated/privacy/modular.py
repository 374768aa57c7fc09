"""Signed integers modulo a power of two, and back."""

import numpy as np

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError

_MOST_BITS = 64


def reduce(integers: np.ndarray, bits: int) -> np.ndarray:
    """Returns integers modulo 2**bits.

    Args:
        integers: Integers of any shape, signed or unsigned.
        bits: 1 to 64.

    Returns:
        uint64 of the same shape, below 2**bits.

    Raises:
        ConfigError: `bits` is out of range.
        MessageError: Something else than integers is given.
    """
    check_bits(bits)
    integers = np.asarray(integers)
    if integers.dtype.kind not in "iu":
        raise MessageError(f"Integers are expected, not {integers.dtype}.")
    return integers.astype(np.uint64) & np.uint64(2**bits - 1)


def centre(residues: np.ndarray, bits: int) -> np.ndarray:
    """Returns the integers from -2**(bits - 1) to 2**(bits - 1) - 1 of residues modulo 2**bits.

    Args:
        residues: uint64 of any shape; bits beyond the modulus are ignored.
        bits: 1 to 64.

    Returns:
        int64 of the same shape.

    Raises:
        ConfigError: `bits` is out of range.
    """
    check_bits(bits)
    unused = _MOST_BITS - bits
    return (np.asarray(residues, np.uint64) << np.uint64(unused)).astype(np.int64) >> unused


def check_bits(bits: int) -> None:
    """Checks a number of bits.

    Raises:
        ConfigError: It is not from 1 to 64.
    """
    if not 1 <= bits <= _MOST_BITS:
        raise ConfigError(f"An integer has {bits!r} bits; possible: 1 to {_MOST_BITS}.")
