"""The leaderboard as one HTML file, which loads no other files, and as Markdown.

Both are templates of the same values. In both, all that is not a template's own text is escaped.
"""

import base64
import html
import re
from typing import Any

import jinja2
from markupsafe import Markup

from fleet_tools.leaderboard import tables
from fleet_tools.leaderboard.board import Board


def as_html(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    return render("board.html", title="Fleet-Tools leaderboard", board=board)


def as_markdown(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    return _MARKDOWN.get_template("board.md").render(board=board)


def render(template: str, **values: Any) -> str:
    """Returns an HTML page from one of the templates here, with values that it escapes."""
    return _HTML.get_template(template).render(values)


def _label(name: str) -> str:
    name = tables.readable(name)
    return name[:1].upper() + name[1:]


def _plain(value: Any) -> Markup:
    """Returns a value as text that Markdown and HTML show literally."""
    if isinstance(value, Markup):
        return value
    text = html.escape(re.sub(r"\s+", " ", str(value)), quote=False)
    return Markup(re.sub(r"([\\`*_{}\[\]()#+!|~:@])", r"\\\1", text))


def _code(text: str) -> Markup:
    """Returns text as inline code, with a fence longer than any run of backticks in it."""
    text = re.sub(r"\s+", " ", text).strip()
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return Markup(f"{fence} {text} {fence}" if "`" in text else f"`{text}`")


def _environment(**options: Any) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fleet_tools.leaderboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    environment.globals |= {"plots": tables.plots}
    parts = ("across", "ranking", "contact_metrics", "strata", "preview")
    names = [f"{part}_table" for part in parts]
    for name in (*names, "facts", "percent", "interval", "readable"):
        environment.filters[name] = getattr(tables, name)
    environment.filters |= {
        "base64": lambda content: base64.b64encode(content).decode(),
        "code": _code,
        "label": _label,
    }
    return environment


_HTML = _environment()
_MARKDOWN = _environment(finalize=_plain, keep_trailing_newline=True)
