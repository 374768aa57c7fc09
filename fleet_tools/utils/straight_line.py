"""Arithmetic without branches as machine code that is made in hundredths of a second.

A function is run once on symbols instead of numbers. What it does with them, some thousand
operations in a fixed order, is the program, and LLVM translates it as it stands. No types are
inferred, no loops are left and no memory is managed. So it takes a fiftieth of the time of a
compiler of Python (`fleet_tools.utils.compiled`), and nothing has to be kept on disk.
"""

import ctypes
import functools
import itertools
import math
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar, TypeVarTuple, cast

import numpy as np

from fleet_tools.utils.symbols import LineProgram, MachineCode, Number, zeros

F = TypeVar("F", bound=Callable[..., Any])
Values = TypeVarTuple("Values")


def straight_line(function: F) -> F:
    """Returns a function of numbers and arrays as machine code for each form of its arguments.

    The code rounds as IEEE 754 and the order of the source say, on every processor: nothing fuses
    or reorders operations, and sine, cosine and arctangent are the C library's.

    Floats and the entries of arrays are variables. Integers are constants: each value is translated
    by itself. Both may stand in tuples, also named ones, and in what `pack` returns. Results are
    floats, arrays and tuples of them.

    The function may do arithmetic, index arrays, and loop as often as shapes and constants say. It
    may use the functions of `fleet_tools.utils.symbols`, of which `where` takes the place of
    branches, and others that do no more than that. It runs without them being compiled, on plain
    numbers and slowly, as `__wrapped__`.
    """
    routines: dict[Hashable, _Routine] = {}

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        variables: list[Any] = []
        try:
            form = _form(arguments, variables)
        except _SymbolFoundError:  # another function is being translated, which calls this one
            return function(*arguments)
        routine = routines.get(form)
        if routine is None:
            routine = routines[form] = _Routine(function, form)
        return routine(variables)

    return cast(F, call)


def pack(*values: *Values) -> tuple[*Values]:
    """Returns arguments that stay the same over many calls, put together once.

    A compiled function takes them as a tuple; nothing else can be done with them.

    Args:
        values: Values as `straight_line` takes them.
    """
    return cast(Any, _Packed(values))


class _Packed:
    """The result of `pack`.

    Args:
        values: The values.
    """

    __slots__ = ("form", "numbers")

    def __init__(self, values: tuple[Any, ...]) -> None:
        variables: list[Any] = []
        self.form = _packed_form(_form(values, variables))
        self.numbers = np.concatenate([[], *map(np.ravel, variables)])
        self.numbers.flags.writeable = False


class _PackedForm:
    """The form of packed values, which is equal to itself only and therefore fast to look up.

    Args:
        form: Form of the tuple of the values.
    """

    __slots__ = ("form",)

    def __init__(self, form: Hashable) -> None:
        self.form = form


_packed_form = functools.cache(_PackedForm)


class _Routine:
    """A function's machine code for one form of its arguments, with memory for its numbers.

    Args:
        function: The function.
        form: Form of the tuple of its arguments.
    """

    def __init__(self, function: Callable[..., Any], form: Any) -> None:
        program = LineProgram(_size(form))
        result = function(*_with_symbols(form, iter(program.inputs)))
        outputs: list[Any] = []
        self._read = _reader(result, outputs)
        self._code = MachineCode(program.text(outputs))
        inputs, self._outputs = np.zeros(_size(form)), np.zeros(len(outputs))
        # Unlike CFUNCTYPE it keeps Python's lock, which is faster for a microsecond's work.
        run = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._code.address)
        addresses = (ctypes.c_void_p(a.ctypes.data) for a in (inputs, self._outputs))
        self._run = functools.partial(run, *addresses)
        shapes = list(_shapes(form))
        ends = np.cumsum([0, *map(math.prod, shapes)])
        self._places = [
            inputs[start:end].reshape(shape)
            for (start, end), shape in zip(itertools.pairwise(ends), shapes, strict=True)
        ]
        self._packed: list[Any] = [None] * len(shapes)
        self._lock = threading.Lock()

    def __call__(self, variables: list[Any]) -> Any:
        """Returns the function's result.

        Args:
            variables: The variables of its arguments, in the order of the form.
        """
        with self._lock:
            for k, (place, value) in enumerate(zip(self._places, variables, strict=True)):
                if type(value) is _Packed:
                    if value is self._packed[k]:
                        continue
                    self._packed[k], value = value, value.numbers
                place[...] = value
            self._run()
            outputs = self._outputs.copy()
        return self._read(outputs)


class _SymbolFoundError(Exception):
    """Arguments are symbols instead of numbers."""


def _form(value: Any, variables: list[Any]) -> Hashable:
    """Returns the form of arguments, which contains constants, and adds to the variables.

    It is `float`, the shape of an array, a constant, or a type of tuples and the forms in it.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        if value.dtype.hasobject:
            raise _SymbolFoundError
        variables.append(value)
        return value.shape
    if isinstance(value, _Packed):
        variables.append(value)
        return value.form
    if isinstance(value, float):
        variables.append(value)
        return float
    if isinstance(value, tuple):
        return type(value), tuple([_form(each, variables) for each in value])
    if isinstance(value, int):
        return value
    if isinstance(value, Number):
        raise _SymbolFoundError
    raise TypeError(f"An argument is {value!r}, and not a number, an array or a tuple of them.")


def _with_symbols(form: Any, symbols: Iterator[Any]) -> Any:
    """Returns a value of a form, with symbols for its variables."""
    if form is float:
        return next(symbols)
    if isinstance(form, int):
        return form
    if isinstance(form, _PackedForm):
        return _with_symbols(form.form, symbols)
    if isinstance(form[0], type):
        entries = [_with_symbols(each, symbols) for each in form[1]]
        return getattr(form[0], "_make", tuple)(entries)
    array = zeros(*form)
    array.ravel()[:] = [next(symbols) for _ in range(array.size)]
    return array


def _shapes(form: Any) -> Iterator[tuple[int, ...]]:
    """Yields the shapes of the variables of a form; of what is packed, as one array."""
    if form is float:
        yield ()
    elif isinstance(form, int):
        return
    elif isinstance(form, _PackedForm):
        yield (_size(form.form),)
    elif isinstance(form[0], type):
        for each in form[1]:
            yield from _shapes(each)
    else:
        yield form


def _size(form: Any) -> int:
    """Returns the number of numbers in the variables of a form."""
    return sum(map(math.prod, _shapes(form)))


def _reader(result: Any, outputs: list[Any]) -> Callable[[np.ndarray], Any]:
    """Returns what reads a result out of the array of all outputs, and adds to the outputs."""
    start = len(outputs)
    if isinstance(result, tuple):
        readers = [_reader(each, outputs) for each in result]
        kind: Callable[[list[Any]], Any] = getattr(result, "_make", tuple)  # with names or without
        return lambda numbers: kind([read(numbers) for read in readers])
    if isinstance(result, np.ndarray):
        outputs.extend(result.flat)
        shape, where = result.shape, slice(start, len(outputs))
        return lambda numbers: numbers[where].reshape(shape)
    outputs.append(result)
    return lambda numbers: numbers.item(start)
