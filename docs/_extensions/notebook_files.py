"""Pages in jupytext's MyST format as notebooks, which Jupyter and hosted notebooks read."""

import os
import re
from pathlib import Path

import jupytext
import nbformat

_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#\s]+)[^)]*\)")


def to_ipynb(page: Path, root: Path) -> str:
    """Returns a page as the text of an .ipynb file; the same page gives the same text.

    A notebook travels without the other pages, so a link to one becomes its name and its path.

    Args:
        page: Path of the page, whose cells are `{code-cell}` blocks.
        root: Root of the checkout, to which paths are relative.
    """

    def named(link: re.Match[str]) -> str:
        path = os.path.relpath(page.parent / link[2], root)
        return f"{link[1]} (`{path}`)"

    notebook = jupytext.read(page, fmt="md:myst")
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"  # random otherwise
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(named, cell.source)
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"
