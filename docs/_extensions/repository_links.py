"""Links from pages to files of the repository that are no pages.

A relative link such as `../../examples/basket/README.md` works in the repository as in any Markdown
file; the site gets a copy of the file. A folder is named without a link.
"""

import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def outside_path(page: Path, target: str, pages: Path) -> Path | None:
    """Returns the file or folder outside the pages' folder that a link names, if there is one.

    Args:
        page: The page's file.
        target: Path relative to the page, or absolute; a page's suffix may be missing.
        pages: Folder of all pages.
    """
    path = Path(os.path.normpath(page.parent / target.partition("#")[0]))
    found = next((each for each in (path, Path(f"{path}.md")) if each.exists()), None)
    return None if found is None or found.is_relative_to(pages) else found


def _mend(app: Sphinx, document: nodes.document) -> None:
    page, pages = Path(app.env.doc2path(app.env.docname)), Path(app.srcdir)
    for link in list(document.findall(addnodes.pending_xref)):
        if link.get("refdomain") not in (None, "doc"):
            continue
        path = outside_path(page, str(link["reftarget"]), pages)
        if path is None:
            continue
        content = nodes.inline("", "", *link.children)
        if path.is_file():
            target = f"/{os.path.relpath(path, pages)}"
            content = addnodes.download_reference("", "", *link.children, reftarget=target)
        link.replace_self(content)


def setup(app: Sphinx) -> dict[str, bool]:
    """Mends the links of each page before its files are collected."""
    app.connect("doctree-read", _mend, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
