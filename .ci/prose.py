"""Counts what makes pages hard to read: `python .ci/prose.py [FILE OR FOLDER ...]`.

It reports and forbids nothing; `tests/docs/test_prose.py` holds the bounds. It reads the pages by
default, and the docstrings of modules that are named. Counted are sentences over 25 words, clauses
in the place of a noun, words for which the project has another one, and pages over 1,200 words by
`wc -w`. Rates are per 1,000 words of prose, which has no code, front matter and comments.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "tests"))

from support.prose import (  # noqa: E402
    PAGES,
    docstrings,
    page_text,
    paragraphs,
    sentences,
    words,
)

WORDS, WORDS_OF_A_PAGE = 25, 1200
SHORT = 5
"""Texts with fewer words, such as numbers in cells, are not counted as sentences."""

LONG, CLAUSE, WORD = "long sentence", "clause", "other word"

_CLAUSES = re.compile(
    r"\b(?:what(?! to\b)|whatever|whoever|whose|of (?:which|whom)|(?:that|those) of"
    r"|(?:those|the ones?|all|anyone|everything|nothing) (?:that|who|which)|of (?:one's )?own)\b",
    re.IGNORECASE,
)
"""Clauses and pointers in the place of a noun. A question may begin with "what"."""
_QUESTION = re.compile(r"\b(?:what|whose)\b", re.IGNORECASE)

OTHER_WORDS = {
    r"data sets?": "dataset",
    r"pictures?": "image",
    r"trainings|an? training(?=[.,;:]|$)": "training run",
    r"scenes (?:solved|that are solved)|rates? of success": "success rate",
    r"what (?:is|was) sent": "upload",
    r"what (?:is|was) kept": "checkpoint",
    r"readers? (?:network|that|of clouds)|eyes": "keypoint detector",
    r"lessons?": "training target",
    r"handling": "contact metrics",
    r"stages?": "viewed simulation",
    r"(?<!software )(?<!Mesa.s )drivers?": "server",
    r"exchanges?": "round",
    r"combinations? of (?:networks|models|policies)": "ensemble",
    r"(?<!density-)gates?": "density-gated ensemble",
    r"students?": "distillation",
    r"compress(?:es|ed)?": "structured compression",
    r"keywords": "kwargs",
    r"disturbed": "noise injection",
}
"""Words that the project does not use, and what it says instead.

Words that are also right in another sense (robot, bytes, weights, environment, end, identity) are
left to the reader of the report.
"""
_OTHER = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): say for word, say in OTHER_WORDS.items()}


@dataclass(frozen=True)
class Place:
    """A place that the report counts.

    Attributes:
        kind: `LONG`, `CLAUSE` or `WORD`.
        found: The number of words, the clause, or the word and its replacement.
        sentence: The sentence.
    """

    kind: str
    found: str
    sentence: str


@dataclass(frozen=True)
class Report:
    """Counts of a file.

    Attributes:
        file: Its path.
        size: Its words by `wc -w`, with code and tables.
        words: Its words of prose.
        sentences: Its sentences of at least `SHORT` words.
        places: The places found.
    """

    file: str
    size: int
    words: int
    sentences: int
    places: tuple[Place, ...]

    def count(self, kind: str) -> int:
        """Returns the number of places of a kind."""
        return Counter(place.kind for place in self.places)[kind]


def places(sentence: str) -> Iterator[Place]:
    """Yields what the report counts in a sentence."""
    if (count := words(sentence)) > WORDS:
        yield Place(LONG, str(count), sentence)
    question = sentence.rstrip(' *)"').endswith("?")
    for match in _CLAUSES.finditer(sentence):
        if not (question and _QUESTION.fullmatch(match[0])):
            yield Place(CLAUSE, match[0], sentence)
    for pattern, say in _OTHER.items():
        for match in pattern.finditer(sentence):
            yield Place(WORD, f"{match[0]}: say {say}", sentence)


def report(path: Path) -> Report:
    """Returns the counts of a page, or of a module's docstrings."""
    text = path.read_text(encoding="utf-8")
    texts = docstrings(text) if path.suffix == ".py" else [page_text(text)]
    found = [each for part in texts for line in paragraphs(part) for each in sentences(line)]
    return Report(
        str(path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path),
        len(text.split()),
        sum(map(words, found)),
        sum(words(each) >= SHORT for each in found),
        tuple(place for each in found for place in places(each)),
    )


def total(reports: Sequence[Report]) -> Report:
    """Returns the sum of reports."""
    return Report(
        "all",
        sum(each.size for each in reports),
        sum(each.words for each in reports),
        sum(each.sentences for each in reports),
        tuple(place for each in reports for place in each.places),
    )


def files(names: Sequence[Path]) -> list[Path]:
    """Returns the files that are named or lie in named folders; without names, the pages."""
    if not names:
        found = [path for pattern in PAGES for path in sorted(CHECKOUT.glob(pattern))]
        return [path for path in found if not {"_build", "tables"} & {*path.parts}]
    return [
        path
        for name in names
        for path in ([name] if name.is_file() else sorted(name.rglob("*.*")))
        if path.suffix in (".md", ".py")
    ]


def as_data(each: Report) -> dict[str, object]:
    """Returns a report as JSON data: counts, and rates per 1,000 words of prose."""
    counts = {kind: each.count(kind) for kind in (LONG, CLAUSE, WORD)}
    rates = {kind: round(1000 * count / max(each.words, 1), 1) for kind, count in counts.items()}
    return {
        "file": each.file,
        "size": each.size,
        "words": each.words,
        "sentences": each.sentences,
        "counts": counts,
        "per_1000_words": rates,
        "share_of_long_sentences": round(each.count(LONG) / max(each.sentences, 1), 3),
        "too_long": each.size > WORDS_OF_A_PAGE,
    }


def row(each: Report) -> str:
    """Returns a line of the table."""
    counts = [each.count(kind) for kind in (LONG, CLAUSE, WORD)]
    per = [f"{count} ({1000 * count / max(each.words, 1):.1f})" for count in counts]
    share = f"{each.count(LONG) / max(each.sentences, 1):.0%}"
    size = f"{each.size:,}{'!' if each.size > WORDS_OF_A_PAGE and each.file != 'all' else ' '}"
    return f"{each.file:44}{size:>9}{each.words:>8,}{each.sentences:>8,}{share:>6}" + "".join(
        f"{text:>13}" for text in per
    )


def main(arguments: list[str] | None = None) -> int:
    """Prints the report; returns 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("files", nargs="*", type=Path, help="pages, modules or folders of them")
    parser.add_argument("--list", action="store_true", help="print each place")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    reports = [report(path.resolve()) for path in files(options.files)]
    whole = total(reports)
    if options.json:
        data: dict[str, object] = {
            "pages": [as_data(each) for each in reports],
            "all": as_data(whole),
        }
        if options.list:
            data["places"] = [
                {"file": each.file, **vars(place)} for each in reports for place in each.places
            ]
        print(json.dumps(data, indent=1))
        return 0
    if options.list:
        for each in reports:
            for place in each.places:
                print(f"{each.file}: {place.kind} ({place.found}): {place.sentence}")
        print()
    print(
        f"{'page (counts in brackets: per 1,000 words)':44}{'wc -w ':>9}{'prose':>8}{'sent.':>8}"
        f"{'long':>6}{'over 25':>13}{'clauses':>13}{'other words':>13}"
    )
    for each in (*reports, whole):
        print(row(each))
    over = sum(each.size > WORDS_OF_A_PAGE for each in reports)
    print(f"{len(reports)} pages, {over} over {WORDS_OF_A_PAGE:,} words (marked !)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
