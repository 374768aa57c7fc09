"""`llms.txt` and `llms-full.txt`: the list of all pages for language models, and their text."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.text import TextBuilder
from sphinx.environment import BuildEnvironment
from sphinx.writers.text import TextTranslator

_LENGTH = 200
"""Number of characters of a description, at most."""


@dataclass(frozen=True)
class Page:
    """A page of the site.

    Attributes:
        name: Name without suffix, such as "tasks/hammer".
        title: Heading.
        description: One line.
    """

    name: str
    title: str
    description: str


def llms_text(root: Page, pages: Iterable[Page]) -> str:
    """Returns the list of all pages, with a section for each folder.

    Args:
        root: The first page, whose description is that of the site.
        pages: The others, in their order.
    """
    lines, section = [f"# {root.title}", "", f"> {root.description}"], None
    for page in pages:
        folder = page.name.partition("/")[0]
        if folder != section:
            lines += ["", f"## {folder.replace('_', ' ').capitalize()}", ""]
            section = folder
        text = f": {page.description}" if page.description else ""
        lines.append(f"- [{page.title}]({page.name}.html){text}")
    return "\n".join(lines) + "\n"


def first_sentences(text: str, length: int = _LENGTH) -> str:
    """Returns the sentences of a text that fit into a length, at least one, in one line."""
    sentences = " ".join(text.split()).split(". ")
    kept = sentences[0]
    for sentence in sentences[1:]:
        if len(kept) + len(sentence) > length:
            return f"{kept}."
        kept = f"{kept}. {sentence}"
    return kept


def in_order(root: str, included: Mapping[str, list[str]]) -> Iterator[str]:
    """Yields the names of all pages in the order of the tables of contents, each once."""
    seen: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name not in seen:
            seen.add(name)
            yield name
            for child in included.get(name, ()):
                yield from visit(child)

    return visit(root)


def _page(environment: BuildEnvironment, name: str) -> Page:
    document = environment.get_doctree(name)
    paragraph = next(iter(document.findall(nodes.paragraph)), None)
    given = environment.metadata[name].get("description")
    text = str(given) if given else paragraph.astext() if paragraph else ""
    return Page(name, environment.titles[name].astext(), first_sentences(text))


def _write(app: Sphinx, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html":
        return
    environment, folder = app.env, Path(app.outdir)
    names = list(in_order(app.config.root_doc, environment.toctree_includes))
    first, *others = (_page(environment, name) for name in names)
    (folder / "llms.txt").write_text(llms_text(first, others), encoding="utf-8")
    builder = TextBuilder(app, environment)
    builder.init()
    texts = (_plain_text(builder, name) for name in names)
    (folder / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")


def _plain_text(builder: TextBuilder, name: str) -> str:
    document = builder.env.get_and_resolve_doctree(name, builder)
    translator = builder.create_translator(document, builder)
    document.walkabout(translator)
    return cast(TextTranslator, translator).body


def setup(app: Sphinx) -> dict[str, bool]:
    """Writes the files after the pages."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
