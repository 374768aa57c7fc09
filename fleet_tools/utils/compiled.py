"""Compiles loops to machine code with the same results on every processor.

For arithmetic without branches see `fleet_tools.utils.straight_line`, which needs no cache.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Returns a function of numbers and arrays as compiled code, kept in numba's cache.

    The code rounds as IEEE 754 and the order of the source say, on every processor: numba fuses and
    reorders nothing unless it is told to. The function may use scalar arithmetic, loops and `math`,
    but not `@`, `np.dot` or `np.linalg`: these call BLAS, whose rounding depends on the processor.
    What allocates, slices or unpacks arrays takes several times as long to compile.

    It may call compiled functions of its own file only: numba compiles a function anew when its
    file has changed, and looks at no other file.

    The cache lies beside the file or, where that is not writable, in the user's cache folder, or in
    NUMBA_CACHE_DIR. Where none is writable, each process compiles for 1 to 3 s.
    """
    return cast(F, _Compiled(function))


class _Compiled:
    """A function that numba, whose import takes a while, compiles at the first call.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._dispatcher: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Returns the function's result."""
        if self._dispatcher is None:
            # numba has to find its own kind under the names of all functions that this one calls.
            names = self._function.__globals__
            for name, value in list(names.items()):
                if isinstance(value, _Compiled) and value.__module__ == names["__name__"]:
                    names[name] = value._dispatcher = _dispatcher(value._function)
            self._dispatcher = self._dispatcher or _dispatcher(self._function)
        return self._dispatcher(*arguments)


def _dispatcher(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns numba's dispatcher of a function, with a cache if there is a place for one."""
    from numba import njit

    try:
        return njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no place for a cache
        return njit(error_model="numpy")(function)
