"""Notebooks: they are valid, and every cell of theirs runs."""

from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

import nbformat
from notebook_files import to_ipynb
from support.pages import NOTEBOOKS, blocks, name
from support.processes import ROOT


def read(page: Path) -> nbformat.NotebookNode:
    """Returns the notebook of a page."""
    return nbformat.reads(to_ipynb(page, ROOT), as_version=4)


@pytest.mark.parametrize("page", NOTEBOOKS, ids=name)
def test_a_page_becomes_a_valid_notebook_with_all_its_cells(page):
    notebook = read(page)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert cells == [block.code for block in blocks(page) if block.test == "cell"]
    assert to_ipynb(page, ROOT) == to_ipynb(page, ROOT)


@pytest.mark.parametrize("page", NOTEBOOKS, ids=name)
def test_every_cell_of_code_follows_a_sentence(page):
    types = [cell.cell_type for cell in read(page).cells]
    assert types[0] == "markdown"
    assert ("code", "code") not in pairwise(types)


def test_the_first_cell_installs_what_a_notebook_needs():
    for page in NOTEBOOKS:
        code = next(cell.source for cell in read(page).cells if cell.cell_type == "code")
        uses_torch = any("baselines" in block.code for block in blocks(page))
        assert code.startswith("import importlib.util")
        assert ("[learning]" in code) == uses_torch


def test_a_notebook_names_the_pages_to_which_a_page_links(tmp_path):
    page = tmp_path / "docs" / "a" / "page.md"
    page.parent.mkdir(parents=True)
    page.write_text("[Tasks](../tasks/index.md#b), [Drake](https://drake.mit.edu)\n")
    (cell,) = nbformat.reads(to_ipynb(page, tmp_path), as_version=4).cells
    assert cell.source == "Tasks (`docs/tasks/index.md`), [Drake](https://drake.mit.edu)"


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS, ids=name)
def test_a_notebook_runs(page, tmp_path):
    import nbclient  # with much of Jupyter

    resources = {"metadata": {"path": str(tmp_path)}}  # the kernel's working directory
    client = nbclient.NotebookClient(read(page), timeout=1800, resources=resources)
    client.execute()  # raises if a cell does
