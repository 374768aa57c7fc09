"""Compilation of arithmetic to machine code whose results do not depend on the processor."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Returns a function of numbers and arrays as compiled code, kept in numba's cache.

    The code rounds as IEEE 754 and the order of the source say, on every processor: numba fuses and
    reorders nothing unless it is told to. The function may use scalar arithmetic, loops and `math`,
    but not `@`, `np.dot` or `np.linalg`: these call BLAS, whose rounding depends on the processor.

    It may call compiled functions of its own file only: numba compiles a function anew when its
    file has changed, and looks at no other file.

    The cache lies beside the file or, where that is not writable, in the user's cache folder. Where
    neither is, every process compiles anew.
    """
    try:
        compile_at_first_call = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no place for a cache
        compile_at_first_call = njit(error_model="numpy")(function)
    return cast(F, compile_at_first_call)
