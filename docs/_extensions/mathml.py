"""Formulas as MathML, which browsers draw by themselves: no scripts, no fonts, no network."""

import html
from typing import Any, NoReturn

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

_logger = logging.getLogger(__name__)


def markup(tex: str, block: bool, location: nodes.Node | None = None) -> str:
    """Returns a formula as MathML, or as its source with a warning if it cannot be read.

    Args:
        tex: LaTeX without delimiters.
        block: Whether the formula has lines of its own.
        location: Its node, for the warning.
    """
    try:
        return tex2mathml(tex, as_block=block)
    except MathError as error:
        _logger.warning("the formula %r cannot be read: %s", tex, error, location=location)
        return f"<code>{html.escape(tex)}</code>"


def _visit_inline(translator: Any, node: nodes.math) -> NoReturn:
    translator.body.append(markup(node.astext(), block=False, location=node))
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.math_block) -> NoReturn:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append(markup(node.astext(), block=True, location=node) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
