"""Notebooks: pages with `{code-cell}` blocks, and beside each page its .ipynb file.

A page is a notebook if its front matter names a kernel. Cells are shown as code; nothing is
executed when the site is built.
"""

from pathlib import Path

from docutils import nodes
from notebook_files import to_ipynb
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives.code import CodeBlock
from sphinx.environment import BuildEnvironment


def _is_notebook(environment: BuildEnvironment, name: str) -> bool:
    return "kernelspec" in environment.metadata[name]


def _add_link(app: Sphinx, document: nodes.document) -> None:
    name = app.env.docname
    if not _is_notebook(app.env, name):
        return
    file = f"{Path(name).name}.ipynb"
    link = addnodes.download_reference("", file, refuri=file)
    first = next(iter(document.findall(nodes.paragraph)))
    first.parent.insert(
        first.parent.index(first) + 1,
        nodes.paragraph("", "", nodes.Text("Download this notebook: "), link, nodes.Text(".")),
    )


def _write(app: Sphinx, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html":
        return
    pages, site = Path(app.srcdir), Path(app.outdir)
    for name in app.env.found_docs:
        if _is_notebook(app.env, name):
            text = to_ipynb(Path(app.env.doc2path(name)), pages.parent)
            (site / f"{name}.ipynb").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the cells, the links to the files, and the files."""
    app.add_directive("code-cell", CodeBlock)
    app.connect("doctree-read", _add_link, priority=900)  # after Sphinx looked for its downloads
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
