"""Lists the error messages of the package: `python .ci/messages.py --help` shows the options.

A message is the text with which an error is made, as a template: the fields of f-strings are in
braces, and so is whatever else is computed. `--help-texts` lists instead the texts under the fields
of classes, which are what programs and configurations say of their options.
"""

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("fleet_tools", "experts", "baselines", "assets")
_TESTS = "baselines/merging/tests/"


class Message(NamedTuple):
    """A message, and where it stands."""

    path: str
    line: int
    kind: str
    """The class of the error or warning; for a help text, `Class.field`."""
    text: str


def template(node: ast.AST) -> str:
    """Returns the text of an expression, with what is computed in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(template, parts))
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{{{template(body)} | {template(orelse)}}}"
    return f"{{{ast.unparse(node)}}}"


def _name(node: ast.AST) -> str:
    return ast.unparse(node).rpartition(".")[2]


def errors(tree: ast.AST, path: str) -> Iterator[Message]:
    """Yields the errors and warnings that a module makes: raised at once, or returned for that."""
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Warning")):
            yield from _texts_of_class(node, path)
        if not isinstance(node, ast.Call):
            continue
        kind = _name(node.func)
        made = id(node) in raised or kind.endswith(("Error", "Warning"))
        if (made and node.args) or kind == "warn":
            arguments = [*node.args, *(each.value for each in node.keywords)]
            texts = [template(each) for each in arguments]
            yield Message(path, node.lineno, kind, " | ".join(texts))


def _texts_of_class(node: ast.ClassDef, path: str) -> Iterator[Message]:
    for call in ast.walk(node):
        match call:
            case ast.Call(func=func, args=[text, *_]) if ast.unparse(func) == "super().__init__":
                yield Message(path, call.lineno, node.name, template(text))


def help_texts(tree: ast.AST, path: str) -> Iterator[Message]:
    """Yields the texts that stand under the annotated fields of a module's classes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for field, below in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                name = f"{node.name}.{ast.unparse(field.target)}"
                text = " ".join(str(below.value.value).split())
                yield Message(path, field.lineno, name, text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the messages of files whose paths begin with one of the given paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=PACKAGES)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--help-texts", action="store_true")
    options = parser.parse_args(arguments)
    find = help_texts if options.help_texts else errors
    command = ["git", "ls-files", "--", *options.paths]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    files = [each for each in listed.stdout.splitlines() if each.endswith(".py")]
    found = [
        message
        for path in files
        if not path.startswith(_TESTS)
        for message in sorted(find(ast.parse((CHECKOUT / path).read_text()), path))
    ]
    if options.json:
        json.dump([each._asdict() for each in found], sys.stdout, indent=1)
        return
    for each in found:
        print(f"{each.path}:{each.line}: {each.kind}: {each.text}")
    print(f"{len(found)} messages", file=sys.stderr)


if __name__ == "__main__":
    main()
