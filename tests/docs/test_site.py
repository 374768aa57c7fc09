"""The built site, and what only Sphinx can read."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

from notebook_files import to_ipynb
from PIL import Image
from support.pages import DOCS, NOTEBOOKS, PAGES
from support.processes import ROOT, run_command

pytest.importorskip("sphinx", reason="the extra `docs` is not installed")

import cli_reference
from docstrings import as_rst
from experiment_pages import parts
from llms_text import Page, first_sentences, in_order, llms_text
from mathml import markup
from repository_links import outside_path
from sphinx.search.en import SearchEnglish

from fleet_tools.utils import cli


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from nothing with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    built = run_command(*command, str(DOCS), str(folder))
    assert built.returncode == 0, built.stderr
    return folder


def option_names() -> set[str]:
    """Returns the spellings of the options of all programs."""
    commands = [
        command
        for program in cli_reference.programs().values()
        for command in (
            [program.command] if isinstance(program.command, cli.Command)
            else program.command.values()
        )
    ]  # fmt: skip
    return {
        name
        for command in commands
        for option in cli_reference.command_options(command.options)
        for name in option.names
        if name.startswith("--")
    }


def errors() -> set[str]:
    """Returns the names of all public errors of the package, by what their source says."""
    rooms = [ROOT / each for each in ("fleet_tools", "baselines", "experts", "assets")]
    text = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    base = dict(re.findall(r"^class (\w+Error)\((\w+)", text, re.MULTILINE))

    def ours(name: str) -> bool:
        return name in ("FleetToolsError", "MergingError") or (name in base and ours(base[name]))

    return {name for name in base if ours(name) and not name.startswith("_")}


def pages_found(index: Mapping[str, Any], query: str) -> set[str]:
    """Returns the pages that the site's search finds for a query, as `searchtools.js` does.

    A page is found if it has every word of the query, by its stem and without stop words, or
    documents an object whose name has every one of them.
    """
    language = SearchEnglish({})
    words = re.findall(r"\w+", query.lower())
    found = set()
    for prefix, rows in index["objects"].items():
        for page, *_, name in rows:
            if all(word in f"{prefix}.{name}".lower() for word in words):
                found.add(page)
    having = []
    for word in words:
        if word in language.stopwords or word.isdigit():
            continue
        pages = [index[where].get(language.stem(word), []) for where in ("terms", "titleterms")]
        having.append(
            {page for each in pages for page in (each if isinstance(each, list) else [each])}
        )
    found |= set.intersection(*having) if having else set()
    return {index["docnames"][page] for page in found}


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
def test_the_search_finds_every_option_and_every_error(site):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert pages_found(index, "no_such_word_anywhere") == set()
    sought = {
        **dict.fromkeys(option_names(), "reference/cli"),
        **dict.fromkeys(errors(), "reference/api/"),
    }
    lost = [
        query
        for query, page in sought.items()
        if not any(found.startswith(page) for found in pages_found(index, query))
    ]
    assert lost == []


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


def test_every_error_is_in_the_reference():
    listed = (DOCS / "reference" / "api" / "errors.md").read_text().splitlines()
    names = {
        line.rpartition(".")[2]
        for line in listed
        if line.startswith(("fleet_tools.", "fleet_merging."))
    }
    assert names == errors()


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
    page += '\n<picture><source srcset="x_months.png"><img src="x_months.webp" alt="G"></picture>\n'
    figures, tables = parts(page)
    assert figures == [("F", "x.png"), ("G", "x_months.webp")]
    assert tables == "**Rate**\n\n| a |\n| --- |\n| 1 |"
    for file in sorted((ROOT / "experiments").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        if "([experiment](" in text:
            figures, tables = parts(text)
            rows = [line for line in text.splitlines() if line.startswith("|")]
            assert [line for line in tables.splitlines() if line.startswith("|")] == rows
            assert len(figures) == text.count("![") + text.count("<picture>")


def test_animations_have_a_still_and_missing_results_are_named(tmp_path):
    (tmp_path / "x.yaml").touch()
    for name in ("y_months.webp", "y_months.png"):
        Image.new("RGB", (1, 1)).save(tmp_path / name)
    moving = '<picture><source srcset="y_months.png"><img src="y_months.webp" alt="G"></picture>'
    (tmp_path / "y.md").write_text(f"# y\n\n([experiment](y.yaml)).\n\n{moving}\n")
    blocks = [f"```{{experiment}} {name}.md\n```\n" for name in "xy"]
    (tmp_path / "index.md").write_text("\n".join(["# Page\n", *blocks]))
    (tmp_path / "conf.py").write_text(
        f"import sys; sys.path.insert(0, {str(DOCS / '_extensions')!r})\n"
        'extensions, exclude_patterns = ["myst_parser", "experiment_pages"], ["y.md"]\n'
        'myst_enable_extensions = ["attrs_inline"]\n'
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "site")]
    built = run_command(*command)
    assert built.returncode == 0, built.stderr
    text = (tmp_path / "site" / "index.html").read_text()
    assert re.search(r"results of <code.*>x<.*> are not stored yet", text)
    assert re.findall(r'class="(moving|still)" src="_images/(.*?)"', text) == [
        ("moving", "y_months.webp"),
        ("still", "y_months.png"),
    ]


def test_the_life_of_a_fleet_has_a_conclusion_once_its_result_is_stored():
    first = (DOCS / "results" / "life.md").read_text().splitlines()[2]
    is_stored = (ROOT / "experiments/life/six_tools.json").exists()
    assert ("not stored yet" in first) != is_stored


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
