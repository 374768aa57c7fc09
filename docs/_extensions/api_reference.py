"""The Python API as reStructuredText for autodoc, from lists of names; docstrings as Markdown."""

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from model_docs import escape


def find(name: str) -> Any:
    """Returns what a dotted name such as "fleet_tools.ToolUseEnv" or "...module.function" means.

    Raises:
        ModuleNotFoundError, AttributeError: It means nothing.
    """
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def entries(names: Iterable[str]) -> str:
    """Returns the directives that document names, in a block that MyST passes on."""
    blocks = "\n\n".join(map(entry, names))
    return f"```{{eval-rst}}\n{blocks}\n```"


def entry(name: str) -> str:
    """Returns the directive that documents a class with its members, a function or a constant."""
    found = find(name)
    if inspect.isclass(found):
        bases = "\n   :show-inheritance:" if issubclass(found, Exception) else ""
        return f".. autoclass:: {name}\n   :members:{bases}"
    if inspect.isfunction(found):
        return f".. autofunction:: {name}"
    return f".. autodata:: {name}"


def module_text(name: str) -> str:
    """Returns a module's docstring as Markdown, in which indented lines are code."""
    docstring = inspect.cleandoc(importlib.import_module(name).__doc__ or "")
    text = docstring.partition("\n\nRaises:\n")[0]
    parts = [
        f"```python\n{inspect.cleandoc(part)}\n```" if part.startswith("    ") else escape(part)
        for part in _joined_code(text.split("\n\n"))
    ]
    return "\n\n".join(parts)


def _joined_code(parts: Iterable[str]) -> list[str]:
    """Joins neighbouring parts that are indented."""
    joined: list[str] = []
    for part in parts:
        if joined and part.startswith("    ") and joined[-1].startswith("    "):
            joined[-1] += f"\n\n{part}"
        else:
            joined.append(part)
    return joined
