"""Pages of experiments in the site: their figures first, and their tables folded below."""

import os
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_PICTURE = re.compile(r'^<picture>.*<img src="([^"]+)" alt="([^"]*)"></picture>$', re.MULTILINE)
_FIGURE = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+)\)$", re.MULTILINE)
_HEADING = re.compile(r"^#{2,6} +(.+?) *$", re.MULTILINE)


def parts(page: str) -> tuple[list[tuple[str, str]], str]:
    """Returns the figures of an experiment's page, and its tables.

    Args:
        page: Text of the page, as `fleet_tools.baselines.experiment` writes it.

    Returns:
        Text and path of each figure, and what stands below the page's second paragraph without the
        figures, as Markdown whose headings are bold lines.
    """
    _, _, body = page.partition(".yaml)).")
    body = _PICTURE.sub(r"![\2](\1)", body)
    tables = _HEADING.sub(r"**\1**", _FIGURE.sub("", body))
    return _FIGURE.findall(body), re.sub(r"\n{3,}", "\n\n", tables).strip()


class Experiment(SphinxDirective):
    """The figures and tables of the experiment's page that the argument names, once it is stored.

    Of an animation, CSS shows the last frame in print and to readers who prefer reduced motion.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the figures, and the tables in an element that unfolds."""
        here = Path(self.env.doc2path(self.env.docname)).parent
        file = Path(os.path.normpath(here / self.arguments[0]))
        self.env.note_dependency(str(file))
        if not file.exists() and file.with_suffix(".yaml").exists():
            return self.parse_text_to_nodes(f"The results of `{file.stem}` are not stored yet.")
        figures, tables = parts(file.read_text(encoding="utf-8"))
        shown = []
        for text, path in figures:
            image = f"![{text}]({os.path.relpath(file.parent / path, here)})"
            if path.endswith(".webp"):
                image += f"{{.moving}} {image.replace('.webp)', '.png)')}{{.still}}"
            shown.append(image)
        if not tables:
            return self.parse_text_to_nodes("\n\n".join(shown))
        opened = '<details class="tables"><summary>Tables</summary>'
        return [
            *self.parse_text_to_nodes("\n\n".join(shown)),
            nodes.raw("", opened, format="html"),
            *self.parse_text_to_nodes(tables),
            nodes.raw("", "</details>", format="html"),
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directive."""
    app.add_directive("experiment", Experiment)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
