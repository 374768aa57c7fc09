"""Compiles branch-free arithmetic to machine code in hundredths of a second.

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
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple, cast

import numpy as np

from fleet_tools.utils.symbols import LineProgram, MachineCode, Number, zeros

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Values = TypeVarTuple("Values")

_FLOAT = np.dtype(float)


class StraightLine(Protocol[P, R_co]):
    """A function of `straight_line`."""

    __wrapped__: Callable[..., Any]

    def __call__(self, *arguments: P.args, **names: P.kwargs) -> R_co:
        """Returns the result."""
        ...

    def bind(self, *arguments: P.args, **names: P.kwargs) -> "BoundRoutine":
        """Returns the machine code for the form of some arguments, which it holds, to be called."""
        ...


def straight_line(function: Callable[P, R_co]) -> StraightLine[P, R_co]:
    """Returns a function of numbers and arrays as machine code for each form of its arguments.

    The code rounds as IEEE 754 and the order of the source say, on every processor: nothing fuses
    or reorders operations, and sine, cosine and arctangent are the C library's.

    Floats and the entries of arrays are variables. Integers are constants: each value is translated
    by itself. Both may stand in tuples, also named ones, and in what `pack` returns. Results are
    floats, arrays and tuples of them.

    The function may do arithmetic, index arrays, and loop as often as shapes and constants say. It
    may use the functions of `fleet_tools.utils.symbols`, of which `where` takes the place of
    branches, and others that do no more than that. It runs without them being compiled, on plain
    numbers and slowly, as `__wrapped__`. For a function of microseconds, most
    of a call is the handling of arguments. `bind` skips it for constant arguments.
    """
    codes: dict[Hashable, _Code] = {}
    shared: dict[Hashable, tuple[BoundRoutine, threading.Lock]] = {}

    def bound(form: Hashable) -> BoundRoutine:
        code = codes.get(form)
        if code is None:
            code = codes[form] = _Code(cast(Any, function), form)
        return BoundRoutine(code)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        variables: list[Any] = []
        try:
            form = _forms(arguments, variables)
        except _SymbolFoundError:  # another function is being translated, which calls this one
            return cast(Any, function)(*arguments)
        found = shared.get(form)
        if found is None:
            found = shared[form] = bound(form), threading.Lock()
        routine, lock = found
        with lock:
            routine.fill(variables)
            outputs = routine().copy()
        return routine.code.read(outputs)

    def bind(*arguments: Any) -> BoundRoutine:
        variables: list[Any] = []
        routine = bound(_forms(arguments, variables))
        routine.fill(variables)
        return routine

    compiled = cast(Any, call)
    compiled.bind = bind
    return compiled


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


class _Code:
    """A function's machine code for one form of its arguments.

    Args:
        function: The function.
        form: Forms of its arguments.

    Attributes:
        shapes: Shapes of the variables.
        num_outputs: Number of numbers in the result.
        run: Takes the addresses of the variables and of the outputs.
        read: Makes the result of an array of the outputs.
    """

    def __init__(self, function: Callable[..., Any], form: Any) -> None:
        self.shapes = [shape for each in form for shape in _shapes(each)]
        program = LineProgram(sum(map(math.prod, self.shapes)))
        symbols, outputs = iter(program.inputs), []
        result = function(*[_with_symbols(each, symbols) for each in form])
        self.read = _reader(result, outputs)
        self.num_outputs = len(outputs)
        self._code = MachineCode(program.text(outputs))
        # Unlike CFUNCTYPE it keeps Python's lock, which is faster for a microsecond's work.
        self.run = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._code.address)


class BoundRoutine:
    """A function's machine code with memory for its arguments, which stay from call to call.

    A call computes with what the memory holds, and returns the numbers of the result in order. The
    next call overwrites them. Only one thread may use it.

    Args:
        code: The machine code.

    Attributes:
        code: As given.
        inputs: Memory of each variable in the arguments, to be written to; of a float, an array
            without dimensions. `put` replaces packed arguments.
    """

    def __init__(self, code: _Code) -> None:
        self.code = code
        ends = np.cumsum([0, *map(math.prod, code.shapes)])
        inputs, self._outputs = np.zeros(ends[-1]), np.zeros(code.num_outputs)
        self.inputs = [
            inputs[start:end].reshape(shape)
            for (start, end), shape in zip(itertools.pairwise(ends), code.shapes, strict=True)
        ]
        self._packed: list[Any] = [None] * len(self.inputs)
        addresses = (ctypes.c_void_p(a.ctypes.data) for a in (inputs, self._outputs))
        self._run = functools.partial(code.run, *addresses)

    def __call__(self) -> np.ndarray:
        """Returns the numbers of the result."""
        self._run()
        return self._outputs

    def put(self, k: int, packed: tuple[Any, ...]) -> None:
        """Replaces a packed argument, which takes no time if it is the same.

        Args:
            k: Its place in `inputs`.
            packed: What `pack` returns for values of the same form.
        """
        if packed is not self._packed[k]:
            self.inputs[k][...] = cast(Any, packed).numbers
            self._packed[k] = packed

    def fill(self, variables: list[Any]) -> None:
        """Replaces all variables.

        Args:
            variables: Numbers, arrays and packed arguments, in order.
        """
        for k, value in enumerate(variables):
            if type(value) is _Packed:
                self.put(k, cast(Any, value))
            else:
                self.inputs[k][...] = value


class _SymbolFoundError(Exception):
    """Arguments are symbols instead of numbers."""


def _forms(arguments: tuple[Any, ...], variables: list[Any]) -> tuple[Hashable, ...]:
    """Returns the forms of arguments, and adds to the variables; see `_form`.

    The usual ones without a call of Python each, which would take longer than they do.
    """
    forms = []
    for value in arguments:
        kind = type(value)
        if kind is _Packed:
            form = value.form
        elif kind is np.ndarray and value.dtype is _FLOAT and value.ndim:
            form = value.shape
        elif kind is float:
            form = float
        else:
            forms.append(_form(value, variables))
            continue
        forms.append(form)
        variables.append(value)
    return tuple(forms)


def _form(value: Any, variables: list[Any]) -> Hashable:
    """Returns the form of an argument, which contains constants, and adds to the variables.

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
    raise TypeError(
        f"Expected a number, an array or a tuple of them as argument; given: {value!r}."
    )


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
