"""Renders the leaderboard as one self-contained HTML file and as Markdown.

Both are templates of the same values. In both, all that is not a template's own text is escaped.
"""

import base64
import html
import re
from collections.abc import Iterator
from typing import Any

import jinja2
from markupsafe import Markup

from fleet_tools.leaderboard import tables, texts
from fleet_tools.leaderboard.board import Board, Method
from fleet_tools.leaderboard.tables import READS


def as_html(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    return render("board.html", title="Fleet-Tools leaderboard", **_values(board))


def as_markdown(board: Board) -> str:
    """Returns the tables of the page; the same board gives the same text."""
    return _MARKDOWN.get_template("board.md").render(_values(board))


def render(template: str, **values: Any) -> str:
    """Returns an HTML page from one of the templates here, with values that it escapes."""
    return _HTML.get_template(template).render(values)


def _values(board: Board) -> dict[str, Any]:
    methods = sorted(board.methods, key=lambda each: [*READS, each.track].index(each.track))
    return {
        "board": board,
        "methods": [each for each in methods if not each.self_reported],
        "self_reported": [each for each in methods if each.self_reported],
        "ranked": any(each.rank for each in methods),
        "anchors": {each.name: f"method-{place}" for place, each in enumerate(board.methods)},
        "texts": {
            "intro": texts.INTRO,
            "nothing": texts.NOTHING,
            "self_reported": texts.SELF_REPORTED,
            "reading": texts.READING,
        },
    }


def _facts(method: Method) -> Iterator[tuple[str, str]]:
    """Yields facts about a method by name; the first stand in the table, too, but not on phones."""
    yield "name", method.name
    yield "reads", READS.get(method.track, method.track)
    yield from ({"letters": method.letters} if method.letters else {}).items()
    yield from method.provenance.items()


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
    for name in ("columns", "method_cells", "details", "by_stratum", "readable"):
        environment.filters[name] = getattr(tables, name)
    environment.filters |= {
        "base64": lambda content: base64.b64encode(content).decode(),
        "code": _code,
        "facts": _facts,
        "label": _label,
        "seed": texts.seed_text,
    }
    return environment


_HTML = _environment()
_MARKDOWN = _environment(finalize=_plain, keep_trailing_newline=True)
