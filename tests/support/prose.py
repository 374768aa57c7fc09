"""Sentences that are hard to read, in pages and docstrings: `python tests/support/prose.py`.

The tests forbid them; `.ci/prose.py` counts by stricter bounds. Found are sentences of more than 35
words, parentheses of more than 20, and "that of" or "those of", after which a reader looks back for
a noun. A docstring is every text that stands alone in a module, so descriptions of fields and
options are among them. Names after the command are files to read alone.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("fleet_tools", "baselines", "experts", "assets", "docs/_extensions")
"""Folders whose docstrings are read."""
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
MADE = ("docs/results/findings.md", "docs/results/tables/")
"""Pages that programs write, or that hold tables alone."""

WORDS, WORDS_IN_PARENTHESES = 35, 20

LONG, PARENTHESIS, POINTING = "sentence", "parenthesis", "that of, those of"

_FENCE = re.compile(r"^\s*(`{3,}|:{3,}).*?^\s*\1\s*$", re.MULTILINE | re.DOTALL)
_GLOSSARY = re.compile(r"^```\{glossary\}$(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADMONITION = re.compile(r"^:{3,}.*$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"``.+?``|`[^`]*`|\${1,2}[^$]+\${1,2}")
_ITEM = re.compile(r"\s*(?:[-*+] |\d+\. |#+ |\|)")
_ENTRY = re.compile(r"\s*(?:[*\w][\w, .*\[\]`]*: |\S.*?\S {2,}\S)")
"""An entry of a section, or a line of a table of two columns."""
_END = re.compile(r"(?<=[.!?])[)*\"]*\s+(?=[^a-z0-9\s])")
_POINTING = re.compile(r"\b(?:that|those) of\b")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Fault:
    """A place that is hard to read.

    Attributes:
        file: Path within the checkout.
        kind: `LONG`, `PARENTHESIS` or `POINTING`.
        text: The sentence, or the parenthesis.
    """

    file: str
    kind: str
    text: str


def faults(file: str, paragraph: str) -> Iterator[Fault]:
    """Yields what is hard to read in a paragraph without line breaks."""
    for sentence in sentences(paragraph):
        inner = re.findall(r"\(([^()]*)\)", sentence)
        if words(sentence) > WORDS:
            yield Fault(file, LONG, sentence)
        for each in inner:
            if words(each) > WORDS_IN_PARENTHESES:
                yield Fault(file, PARENTHESIS, each)
        if _POINTING.search(sentence):
            yield Fault(file, POINTING, sentence)


def sentences(paragraph: str) -> list[str]:
    """Returns the sentences of a paragraph; a piece of code or a formula is the word "CODE"."""
    return _END.split(_CODE.sub("CODE", _LINK.sub(r"\1", paragraph)))


def words(text: str) -> int:
    """Returns the number of words, which have a letter or a digit."""
    return sum(_WORD.search(word) is not None for word in text.split())


def paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs, items, cells of tables and entries of sections, each in a line."""
    kept: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = _ITEM.match(line) or _ENTRY.match(line)
        if kept and (begins or not line.strip()):
            yield " ".join(kept)
            kept = []
        if line.lstrip().startswith("|"):
            yield from (cell.strip() for cell in line.split("|"))
        elif line.strip() and not line.lstrip().startswith(">>>"):
            kept.append(re.sub(r"^(?:[-*+]|\d+\.|#+) ", "", line.strip()))


def page_text(text: str) -> str:
    """Returns a page without blocks of code, comments, and directives other than a glossary."""
    text = re.sub(r"<!--.*?-->", "", _FRONT_MATTER.sub("", text), flags=re.DOTALL)
    text = _GLOSSARY.sub(r"\1", text)
    return _ADMONITION.sub("", _FENCE.sub("\n", text))


def docstrings(source: str) -> Iterator[str]:
    """Yields the texts that stand alone in a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield text


def files() -> Iterator[Path]:
    """Yields the pages and modules that are read."""
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            if not str(path.relative_to(ROOT)).startswith((*MADE, "docs/_build")):
                yield path
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            if not path.is_symlink() and not {"build", "tests"} & set(parts):
                yield path


def found(paths: Sequence[Path] = ()) -> list[Fault]:
    """Returns what is hard to read in files, all by default."""
    result = []
    for path in paths or files():
        text, name = path.read_text(encoding="utf-8"), str(path.resolve().relative_to(ROOT))
        texts = docstrings(text) if path.suffix == ".py" else [page_text(text)]
        result += [
            fault for each in texts for line in paragraphs(each) for fault in faults(name, line)
        ]
    return result


if __name__ == "__main__":
    for fault in found([Path(name) for name in sys.argv[1:]]):
        print(f"{fault.file}: {fault.kind}: {fault.text}")
