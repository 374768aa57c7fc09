"""Writes corrected copies of pydrake's type stubs beside this file, where pyright looks first.

pydrake's own stubs spell arrays as `numpy.ndarray[numpy.float64[3, 1]]`, which NumPy's stubs read
as an array whose shape is a float. In the copies, results are `NDArray[numpy.float64]` and
arguments `ArrayLike` (Drake converts them). Abstract values, and methods that return what they are
given, whatever its class, are `Any`.

    python typings/make_drake_stubs.py && pyright
"""

import ast
from importlib.util import find_spec
from pathlib import Path

_ANY = {"get_value", "AddSystem", "AddFrame"}


class _ArrayTypes(ast.NodeTransformer):
    """Replaces pydrake's spelling of array types, within one annotation."""

    def __init__(self, argument: bool) -> None:
        self._argument = argument

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value) != "numpy.ndarray":
            self.generic_visit(node)
            return node
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        dtype = ast.unparse(first.value if isinstance(first, ast.Subscript) else first)
        if self._argument and dtype != "object":
            return _expression("numpy.typing.ArrayLike")
        dtype = {"object": "Any", "bool": "numpy.bool_"}.get(dtype, dtype)
        return _expression(f"numpy.typing.NDArray[{dtype}]")


class _Signatures(ast.NodeTransformer):
    """Corrects the signatures of a module."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None:
                argument.annotation = _ArrayTypes(argument=True).visit(argument.annotation)
        if node.returns is not None:
            returns: ast.expr = _ArrayTypes(argument=False).visit(node.returns)
            object_ = node.name in _ANY or ast.unparse(returns) == "object"
            node.returns = _expression("Any") if object_ else returns
        return node


def corrected(stub: str) -> str:
    """Returns the corrected text of a stub."""
    tree = _Signatures().visit(ast.parse(stub))
    return "import numpy.typing\nfrom typing import Any\n" + ast.unparse(tree) + "\n"


def main() -> None:
    """Writes the copies of all stubs of the installed pydrake."""
    package = find_spec("pydrake")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("pydrake is not installed here: pip install drake")
    source = Path(package.submodule_search_locations[0])
    target = Path(__file__).parent / "pydrake"
    for stub in sorted(source.rglob("*.pyi")):
        copy = target / stub.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(corrected(stub.read_text()))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


if __name__ == "__main__":
    main()
