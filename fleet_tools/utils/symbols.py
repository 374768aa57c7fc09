"""Symbolic numbers that record arithmetic as a program for LLVM.

The functions of this file take numbers as well as symbols, and compute alike with both.
"""

import functools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def zeros(*shape: int) -> np.ndarray:
    """Returns an array of zeros whose entries may become symbols."""
    return np.zeros(shape, object)


def where(condition: Any, value: Any, otherwise: Any) -> Any:
    """Returns a value if a condition holds, and else another one; both are computed."""
    if not isinstance(condition, Flag):
        return value if condition else otherwise
    a, b = _operand(value), _operand(otherwise)
    return condition.program.number(f"select i1 {condition.name}, double {a}, double {b}")


def larger(a: Any, b: Any) -> Any:
    """Returns max(a, b); a if they do not compare."""
    return where(b > a, b, a)


def smaller(a: Any, b: Any) -> Any:
    """Returns min(a, b); a if they do not compare."""
    return where(b < a, b, a)


def square_root(x: Any) -> Any:
    """Returns the square root of x; NaN if x is negative."""
    if isinstance(x, Number):
        return x.program.call("llvm.sqrt.f64", x)
    return math.nan if x < 0.0 else math.sqrt(x)


def sine(x: Any) -> Any:
    """Returns the sine of x, rad."""
    return x.program.call("sin", x) if isinstance(x, Number) else math.sin(x)


def cosine(x: Any) -> Any:
    """Returns the cosine of x, rad."""
    return x.program.call("cos", x) if isinstance(x, Number) else math.cos(x)


def arctangent(y: Any, x: Any) -> Any:
    """Returns the angle of the point (x, y), rad."""
    for each in (y, x):
        if isinstance(each, Number):
            return each.program.call("atan2", y, x)
    return math.atan2(y, x)


class LineProgram:
    """Operations on symbols, in the order in which they were done.

    Args:
        size: Number of the program's inputs.
    """

    def __init__(self, size: int) -> None:
        self._lines: list[str] = []
        self.inputs = [
            self.number(f"load double, ptr {self._place('inputs', i)}") for i in range(size)
        ]

    def number(self, instruction: str) -> "Number":
        """Adds an instruction whose result is a number."""
        return Number(self, self._add(instruction))

    def condition(self, instruction: str) -> "Flag":
        """Adds an instruction whose result is a truth value."""
        return Flag(self, self._add(instruction))

    def call(self, function: str, *arguments: Any) -> "Number":
        """Adds a call of a function of LLVM or the C library."""
        return self.number(f"call double @{function}({_listed(map(_operand, arguments))})")

    def text(self, outputs: Sequence[Any]) -> str:
        """Returns the program, which writes its outputs, in LLVM's language."""
        for i, output in enumerate(outputs):
            self._lines.append(f"store double {_operand(output)}, ptr {self._place('outputs', i)}")
        body = "\n".join(self._lines)
        head = "define void @run(ptr noalias %inputs, ptr noalias %outputs)"
        return f"{_DECLARATIONS}{head} {{\n{body}\nret void\n}}\n"

    def _place(self, array: str, index: int) -> str:
        return self._add(f"getelementptr double, ptr %{array}, i64 {index}")

    def _add(self, instruction: str) -> str:
        name = f"%x{len(self._lines)}"
        self._lines.append(f"{name} = {instruction}")
        return name


class Flag:
    """A truth value that is known when the program runs."""

    __slots__ = ("name", "program")

    def __init__(self, program: LineProgram, name: str) -> None:
        self.program, self.name = program, name

    def __bool__(self) -> bool:
        """Symbols have no truth value yet."""
        raise TypeError("Symbols cannot choose a branch. Use `where`.")

    def __and__(self, other: Any) -> "Flag":
        """Whether both hold."""
        return self._with("and", other)

    def __or__(self, other: Any) -> "Flag":
        """Whether one holds."""
        return self._with("or", other)

    __rand__, __ror__ = __and__, __or__

    def _with(self, instruction: str, other: Any) -> "Flag":
        name = other.name if isinstance(other, Flag) else str(bool(other)).lower()
        return self.program.condition(f"{instruction} i1 {self.name}, {name}")


def _operator(instruction: str, *, swapped: bool = False) -> Callable[["Number", Any], Any]:
    result = LineProgram.condition if instruction.startswith("fcmp") else LineProgram.number

    def operate(self: "Number", other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented  # numpy does it with each entry
        a, b = self.name, _operand(other)
        a, b = (b, a) if swapped else (a, b)
        return result(self.program, f"{instruction} double {a}, {b}")

    return operate


class Number:
    """A number that is known when the program runs."""

    __slots__ = ("name", "program")

    def __init__(self, program: LineProgram, name: str) -> None:
        self.program, self.name = program, name

    __add__, __radd__ = _operator("fadd"), _operator("fadd", swapped=True)
    __sub__, __rsub__ = _operator("fsub"), _operator("fsub", swapped=True)
    __mul__, __rmul__ = _operator("fmul"), _operator("fmul", swapped=True)
    __truediv__, __rtruediv__ = _operator("fdiv"), _operator("fdiv", swapped=True)
    __lt__, __le__ = _operator("fcmp olt"), _operator("fcmp ole")
    __gt__, __ge__ = _operator("fcmp ogt"), _operator("fcmp oge")
    __eq__ = _operator("fcmp oeq")  # pyright: ignore[reportAssignmentType]
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __neg__(self) -> "Number":
        """The negative number."""
        return self.program.number(f"fneg double {self.name}")

    def __abs__(self) -> "Number":
        """The absolute value."""
        return self.program.call("llvm.fabs.f64", self)

    def __pow__(self, exponent: int) -> "Number":
        """The square."""
        if exponent != 2:
            raise TypeError(f"Symbols support only squares; given: the exponent {exponent!r}.")
        return self * self


_DECLARATIONS = "".join(
    f"declare double @{function}({_parameters})\n"
    for function, _parameters in {
        "llvm.sqrt.f64": "double",
        "llvm.fabs.f64": "double",
        "sin": "double",
        "cos": "double",
        "atan2": "double, double",
    }.items()
)


def _listed(operands: Iterable[str]) -> str:
    return ", ".join(f"double {operand}" for operand in operands)


def _operand(value: Any) -> str:
    """Returns a symbol, or the bits of a number, in LLVM's language."""
    if isinstance(value, Number):
        return value.name
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


class MachineCode:
    """A translated program.

    Args:
        text: Text of the program, see `LineProgram.text`.

    Attributes:
        address: Address of its function of two pointers.
    """

    def __init__(self, text: str) -> None:
        import llvmlite.binding as llvm

        # No instructions that only some processors have, and none of LLVM's optimizations: they
        # take ten times as long as what they save in an episode.
        machine = _target().create_target_machine(opt=0)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self._engine.finalize_object()
        self.address = self._engine.get_function_address("run")


@functools.cache
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()
