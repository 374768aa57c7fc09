"""The built site, and what only Sphinx can read."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

from notebook_files import to_ipynb
from support.pages import DOCS, NOTEBOOKS, PAGES
from support.processes import ROOT, run_command

pytest.importorskip("sphinx", reason="the extra `docs` is not installed")

from docstrings import as_rst
from experiment_pages import parts
from llms_text import Page, first_sentences, in_order, llms_text
from mathml import markup
from repository_links import outside_path


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from nothing with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    built = run_command(*command, str(DOCS), str(folder))
    assert built.returncode == 0, built.stderr
    return folder


def html(page: Path) -> str:
    """Returns the path of a page in the site."""
    return str(page.relative_to(DOCS).with_suffix(".html"))


@pytest.mark.slow
def test_llms_txt_lists_every_page(site):
    listed = re.findall(r"^- \[.+\]\((.+?)\)", (site / "llms.txt").read_text(), re.MULTILINE)
    assert sorted(["index.html", *listed]) == sorted(map(html, PAGES))
    assert all((site / page).is_file() for page in listed)
    assert "collect_episode" in (site / "llms-full.txt").read_text()


@pytest.mark.slow
def test_the_search_index_holds_every_page(site):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert sorted(index["docnames"]) == sorted(html(page).removesuffix(".html") for page in PAGES)


@pytest.mark.slow
def test_every_page_is_reached_from_the_first_one(site):
    reached, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r'href="([^"#:]+\.html)[#"]', page.read_text()):
            waiting.append((page.parent / link).resolve())
    assert {site / html(page) for page in PAGES} <= reached


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="https?://')
    assert [str(page) for page in site.rglob("*.html") if loaded.search(page.read_text())] == []


@pytest.mark.slow
def test_every_notebook_lies_beside_its_page(site):
    for page in NOTEBOOKS:
        file = (site / html(page)).with_suffix(".ipynb")
        assert file.read_text() == to_ipynb(page, ROOT)
        assert re.search(rf'<a [^>]*href="{file.name}"', (site / html(page)).read_text())


# --- Parts ----------------------------------------------------------------------------------


def test_llms_txt_has_pages_in_order_sections_for_folders_and_whole_sentences():
    included = {"index": ["b/index", "a"], "b/index": ["b/x", "a"]}
    assert list(in_order("index", included)) == ["index", "b/index", "b/x", "a"]
    pages = [Page("a_b/index", "A", "First."), Page("faq", "F", ""), Page("a_b/x", "X", "")]
    text = llms_text(Page("index", "Site", "About."), pages)
    listed = "- [A](a_b/index.html): First.\n- [F](faq.html)\n- [X](a_b/x.html)\n"
    assert text == f"# Site\n\n> About.\n\n## A b\n\n{listed}"
    assert first_sentences("One\nline. Two.", length=100) == "One line. Two."
    assert first_sentences("One. Two.", length=3) == "One."


def test_figures_of_an_experiment_come_first_and_its_tables_lose_nothing():
    page = "# x\n\nA ([experiment](x.yaml)).\n\n## Rate\n\n| a |\n| --- |\n| 1 |\n\n![F](x.png)\n"
    figures, tables = parts(page)
    assert figures == [("F", "x.png")]
    assert tables == "**Rate**\n\n| a |\n| --- |\n| 1 |"
    for file in sorted((ROOT / "experiments").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        if "([experiment](" in text:
            figures, tables = parts(text)
            rows = [line for line in text.splitlines() if line.startswith("|")]
            assert [line for line in tables.splitlines() if line.startswith("|")] == rows
            assert len(figures) == text.count("![")


def test_formulas_are_mathml():
    assert "<mfrac>" in markup(r"\frac{1}{2}", block=False)
    assert 'display="block"' in markup("X_{WE}", block=True)
    assert "<code>" in markup(r"\nosuchcommand{", block=False)


def test_a_docstring_has_one_entry_for_each_attribute():
    lines = ["Text (B, *shape).", "", "Attributes:", "    low, high: The", "        limits."]
    assert as_rst(lines) == [
        r"Text (B, \*shape).",
        "",
        "Attributes:",
        *("    low: The", "        limits.", "    high: The", "        limits."),
    ]


def test_links_leave_the_pages_only_for_what_exists():
    page = DOCS / "tasks" / "index.md"
    assert outside_path(page, "../../task_configs/hammer.yaml", DOCS) is not None
    assert outside_path(page, "../../examples/basket/README", DOCS) is not None
    assert outside_path(page, "../index", DOCS) is None
    assert outside_path(page, "../../nothing.yaml", DOCS) is None
