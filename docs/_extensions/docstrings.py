"""Docstrings as autodoc reads them: what Markdown and people read well, in reStructuredText."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_STAR = re.compile(r"(?<![\w*`\\])\*(?=\w)")
_NAMES = re.compile(r"    (\w+(?:, \w+)+): (.*)")


def as_rst(lines: Sequence[str]) -> list[str]:
    """Returns a docstring of Google's style for napoleon.

    A star such as in `(B, *shape)` is a star, and an entry of the section "Attributes" for several
    names becomes one entry for each.
    """
    return [_STAR.sub(r"\\*", line) for line in _one_name_each(lines)]


def _one_name_each(lines: Sequence[str]) -> Iterator[str]:
    in_attributes, k = False, 0
    while k < len(lines):
        line = lines[k]
        k += 1
        if line.strip() and not line.startswith(" "):
            in_attributes = line == "Attributes:"
        match = _NAMES.fullmatch(line) if in_attributes else None
        if match is None:
            yield line
            continue
        rest = []
        while k < len(lines) and lines[k].startswith("        "):
            rest.append(lines[k])
            k += 1
        for name in match[1].split(", "):
            yield from (f"    {name}: {match[2]}", *rest)


def _process(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def _name_fields(app: Sphinx, document: nodes.document) -> None:
    """Says "Attributes: x: text" where Sphinx says "Variables: x -- text"."""
    for names in document.findall(nodes.field_name):
        if names.astext() == "Variables":
            names.children = [nodes.Text("Attributes")]
    for text in [each for each in document.findall(nodes.Text) if each.astext() == " -- "]:
        text.parent.replace(text, nodes.Text(": "))


def setup(app: Sphinx) -> dict[str, bool]:
    """Prepares docstrings before napoleon reads them."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("doctree-read", _name_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
