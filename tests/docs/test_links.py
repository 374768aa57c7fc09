"""Links between pages and to files of the repository, and the tables of contents."""

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

from support.pages import DOCS, PAGES, TEXTS, entries, labels, links, name, targets
from support.processes import ROOT


def wrong(page: Path, link: str) -> str | None:
    """Returns what is wrong with a link of a page, or None."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path, _, target = link.partition("#")
    file = Path(os.path.normpath(page.parent / path)) if path else page
    if not file.exists():
        return f"there is no {path}"
    if not file.is_relative_to(ROOT):
        return f"{path} is outside the repository"
    known = targets(file) if target and file.suffix == ".md" else {target}
    if not path and page in PAGES:
        known = known.union(*map(labels, PAGES))
    return None if target in known else f"{path or name(page)} has no #{target}"


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_links_lead_somewhere(page):
    problems = [f"{name(page)}: {found}" for link in links(page) if (found := wrong(page, link))]
    assert not problems, "\n".join(problems)


def test_every_page_is_in_a_table_of_contents():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += entries(page)
    assert [name(page) for page in PAGES if page not in reached] == []


def test_wrong_links_are_found():
    page = DOCS / "index.md"
    assert wrong(page, "no_such_page.md") is not None
    assert wrong(page, "reference/cli.md#no-such-program") is not None
    assert wrong(page, "reference/cli.md#collect") is None
    assert wrong(page, "../README.md#leaderboard") is None
    assert wrong(page, "reference/yaml.md#yaml-predicate") is None
