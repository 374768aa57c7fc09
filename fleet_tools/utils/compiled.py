"""Compilation of arithmetic to machine code that is the same on every x86-64 processor."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

# The instructions that every x86-64 processor has, and no fused multiply-add: the same bits
# everywhere. numba reads both when it compiles its first function.
numba.config.CPU_NAME = "generic"  # pyright: ignore[reportAttributeAccessIssue]
numba.config.CPU_FEATURES = ""  # pyright: ignore[reportAttributeAccessIssue]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Returns a function of numbers and arrays as compiled code, kept in numba's cache.

    The function may use scalar arithmetic, loops and `math`, but not `@`, `np.dot` or `np.linalg`:
    these call BLAS, whose rounding depends on the processor.
    """
    return numba.njit(cache=True, error_model="numpy")(function)
