"""Pages and docstrings have short sentences, whose nouns a reader need not look for."""

import runpy

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

from support.pages import DOCS, PAGES
from support.prose import (
    LONG,
    PARENTHESIS,
    POINTING,
    ROOT,
    docstrings,
    faults,
    found,
    page_text,
    paragraphs,
)

REPORT = runpy.run_path(str(ROOT / ".ci" / "prose.py"))


def test_pages_and_docstrings_are_easy_to_read():
    assert not found(), "\n".join(map(str, found()))


def test_the_site_has_at_most_sixty_pages_of_prose():
    # Generated, generated from results, and an include of CHANGELOG.md.
    without = DOCS / "reference", DOCS / "results/paper.md", DOCS / "changelog.md"
    assert len([page for page in PAGES if not {page, *page.parents} & {*without}]) <= 60


LONG_SENTENCE = f"{' '.join(['word'] * 36)}."


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (LONG_SENTENCE, [LONG]),
        (f"{' '.join(['word'] * 35)}. Next.", []),
        (f"Short ({' '.join(['word'] * 21)}).", [PARENTHESIS]),
        ("The height is that of the nail.", [POINTING]),
        ("All those of today.", [POINTING]),
        ("`that of` is code, and [those](that of).", []),
    ],
)
def test_faults_are_found_where_they_are(text, kinds):
    assert [fault.kind for fault in faults("page", text)] == kinds


def test_code_and_comments_are_no_prose_and_cells_are_read_alone():
    page = "---\na: that of\n---\n<!-- c -->\nOne\nline.\n\n```sh\nthat of\n```\n\n| a | b c |\n"
    assert [line for line in paragraphs(page_text(page)) if line] == ["One line.", "a", "b c"]
    code = 'x: int = 1\n"""Text.\n\nArgs:\n    a: First\n        line.\n    b: Second.\n"""\n'
    (text,) = docstrings(code)
    assert list(paragraphs(text)) == ["Text.", "Args:", "a: First line.", "b: Second."]


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        (f"{' '.join(['word'] * 26)}.", ["26"]),
        ("Those that send what is kept.", ["Those that", "what", "what is kept: say checkpoint"]),
        ("What is it for?", []),
        ("It says what to do.", []),
        ("The density-gated ensemble, a gate.", ["gate: say density-gated ensemble"]),
    ],
)
def test_the_report_counts_by_stricter_bounds(sentence, found):
    assert [place.found for place in REPORT["places"](sentence)] == found


def test_the_report_reads_pages_and_modules(tmp_path, capsys):
    (tmp_path / "page.md").write_text("# A\n\n```{glossary}\nterm\n  What it is.\n```\n")
    (tmp_path / "module.py").write_text('"""Two words."""\nx = "Whose string."\n')
    assert REPORT["main"]([str(tmp_path), "--list"]) == 0
    printed = capsys.readouterr().out
    assert "page.md: clause (What)" in printed and "Whose" not in printed
    assert "2 pages, 0 over 1,200 words" in printed
