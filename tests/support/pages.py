"""Pages of the documentation as data: blocks of code, links and what they name, contents."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cli_reference
import yaml_reference
from support.processes import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if not {"_build", "tables"}.intersection(path.parts)
)
"""Pages of the site; tables are included by pages."""
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
"""All pages whose blocks and links are tested."""

_FENCE = re.compile(r"(\s*)(`{3,}|~{3,}|:{3,})(.*)")
_MARKER = re.compile(r"<!-- test: (slow|parse|skip: .+) -->")
_CODE = ("code-block", "code", "sourcecode", "code-cell")
_TEXT = ("note", "tip", "warning", "important", "admonition", "seealso", "dropdown", "details")
"""Directives whose content is text with blocks of its own."""
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")


@dataclass(frozen=True)
class Block:
    """A block of code, or a directive.

    Attributes:
        line: Number of its first line.
        language: Its language, or the name of a directive in braces, such as "{toctree}".
        argument: What follows the name of a directive.
        code: Its content.
        test: "run", "slow", "parse" or "skip"; "cell" if it is the cell of a notebook.
    """

    line: int
    language: str
    argument: str
    code: str
    test: str = "run"


def name(page: Path) -> str:
    """Returns a page's path within the checkout."""
    return str(page.relative_to(ROOT))


@lru_cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Returns the blocks of a page, in order."""
    return _split(page.read_text(encoding="utf-8"))[1]


def _split(text: str) -> tuple[str, tuple[Block, ...]]:
    """Returns a text without its blocks, and the blocks."""
    kept: list[str] = []
    found: list[Block] = []
    containers: list[str] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        match = _FENCE.fullmatch(line)
        if match is None:
            kept.append(line)
            continue
        indent, fence, info = match[1], match[2], match[3].strip()
        if not info and fence in containers:
            containers.remove(fence)
            continue
        language, argument = _language(info)
        if language.strip("{}") in _TEXT and language.startswith("{"):
            containers.append(fence)
            continue
        content = [each.removeprefix(indent) for each in _until(lines, fence)]
        test = "cell" if info.startswith("{code-cell}") else _test(kept)
        found.append(Block(number + 1, language, argument, "\n".join(content), test))
    return "\n".join(kept), tuple(found)


def _language(info: str) -> tuple[str, str]:
    language, _, argument = info.partition(" ")
    if language.strip("{}") in _CODE:
        return argument.strip(), ""
    return language, argument.strip()


def _until(lines: Iterator[tuple[int, str]], fence: str) -> Iterator[str]:
    for _, line in lines:
        closing = line.strip()
        if closing.startswith(fence) and not closing.strip(fence[0]):
            return
        yield line


def _test(before: list[str]) -> str:
    last = next((line for line in reversed(before) if line.strip()), "")
    match = _MARKER.fullmatch(last.strip())
    return match[1].partition(":")[0] if match else "run"


NOTEBOOKS = [page for page in PAGES if any(block.test == "cell" for block in blocks(page))]
"""Pages with cells of code, which become notebooks."""


def links(page: Path) -> list[str]:
    """Returns the targets of a page's links and images."""
    text = re.sub(r"`[^`\n]*`", "", _split(page.read_text(encoding="utf-8"))[0])
    return _LINK.findall(text)


@lru_cache
def targets(page: Path) -> frozenset[str]:
    """Returns what links to a page may name: headings as GitHub writes them, and labels."""
    text = "\n".join(_expanded(page))
    headings = re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.MULTILINE)
    slugs: list[str] = []
    for slug in map(_slug, headings):
        same = sum(
            each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None
            for each in slugs
        )
        slugs.append(f"{slug}-{same}" if same else slug)
    return frozenset(slugs) | labels(page)


@lru_cache
def labels(page: Path) -> frozenset[str]:
    """Returns the labels of a page, `(label)=`, which links from every page may name."""
    return frozenset(re.findall(r"^\(([^)]+)\)=$", "\n".join(_expanded(page)), re.MULTILINE))


def _expanded(page: Path) -> Iterator[str]:
    """Yields a page's text, and what its directives put into it."""
    text, found = _split(page.read_text(encoding="utf-8"))
    yield text
    for block in found:
        match block.language:
            case "{cli-reference}":
                yield _split(cli_reference.reference(cli_reference.programs()))[0]
            case "{yaml-reference}":
                yield yaml_reference.reference()
            case "{include}":
                yield from _expanded(Path(os.path.normpath(page.parent / block.argument)))


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.replace("`", "").replace("*", ""))
    return text.strip().lower().replace(" ", "-")


def entries(page: Path) -> list[Path]:
    """Returns the pages that a page's tables of contents name; a pattern names what it matches."""
    found = []
    for block in blocks(page):
        if block.language != "{toctree}":
            continue
        for line in filter(None, map(str.strip, block.code.splitlines())):
            if line.startswith(":"):
                continue
            entry = re.sub(r".*<(.*)>", r"\1", line).removesuffix(".md")
            base = DOCS if entry.startswith("/") else page.parent
            matches = sorted(base.glob(f"{entry.lstrip('/')}.md"))
            assert matches or "*" in entry, f"{name(page)}: no page {entry}"
            found += [match for match in matches if match != page]
    return found
