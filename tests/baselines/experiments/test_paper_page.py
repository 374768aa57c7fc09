"""The page on the paper's figures: its numbers are in stored results, and words hold no figures."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT
from support.prose import page_text, paragraphs, sentences, words

from fleet_tools.baselines.experiments.form import Experiment, load_experiment
from fleet_tools.baselines.experiments.result import as_json, make_result
from fleet_tools.config.values import load_yaml, parse
from fleet_tools.errors import ConfigError, FleetToolsError

SCRIPT = runpy.run_path(str(ROOT / "docs/results/paper_page.py"))
CONTENT = load_yaml(SCRIPT["PaperRows"], SCRIPT["ROWS"])
TEXT = SCRIPT["PAGE"].read_text(encoding="utf-8")
FOLDED = re.compile(r'<details class="tables">.*?<a id="([^"]+)">.*?</details>', re.DOTALL)
NUMBER = re.compile(r"(?<![\w/.-])\d+(?:[.,]\d+)*(?:e-?\d+)?")

FIGURES = [
    "Introduction", "1", "Proposition 1", "3a", "3b", "3c", "3d", "4a", "4b", "4c", "4d",
    "Section 5.2", "Proposition 2", "Proposition 3", "7", "8", "9", "10", "11", "12a", "12b",
    "12c", "12d", "12e", "12f", "13 left", "13 right", "Proposition 4",
]  # fmt: skip
"""All figures, panels and claims of the paper with a result, and its propositions, in order."""

FORM = {
    "arena": "tool_use",
    "base": {
        "robots": 5,
        "training": {"epochs": 60},
        "policy": {"body": {"type": "mlp", "layers": 3, "width": 256}},
    },
    "vary": "split.alpha",
    "values": [0.1, 10],
    "arms": {"one": {"method": "naive_average"}, "other": {"method": "git_rebasin"}},
    "references": ["joint"],
}
SHOWN = {"experiment": "experiments/paper/4b", "arms": {"one": "One", "joint": "Joint"}}


def content_of(**row: Any) -> Any:
    """Returns the content of a page of one row, on the experiment `experiments/paper/4b`."""
    base = {"figure": "4b", "claim": "It is best.", "shown": [SHOWN | {"first": ["one"]}]}
    return parse(SCRIPT["PaperRows"], {"rows": [base | row]}, "The page")


def checkout(folder: Path, solved: int | None, **measures: Any) -> Path:
    """Makes a checkout with the experiment, and with a result of ten scenes if some are solved."""
    path = folder / "experiments" / "paper" / "4b.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(FORM))
    if solved is not None:
        experiment = parse(Experiment, FORM, "The test")
        row = [int(scene < solved) for scene in range(10)]
        cells = [
            {"arm": arm, "value": value, "seed": seed, "success": {"hammer": [row]}, **measures}
            for arm in experiment.compared
            for value in experiment.cases
            for seed in range(3)
        ]
        path.with_suffix(".json").write_text(as_json(make_result(experiment, cells)))
    return folder


def lines_of(page: str) -> list[list[str]]:
    """Returns the cells of all rows of tables."""
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]


def numbers_in(data: Any) -> Iterator[float]:
    """Yields all numbers of JSON data, also those in its texts."""
    if isinstance(data, dict):
        data = [*data, *data.values()]
    if isinstance(data, list):
        for each in data:
            yield from numbers_in(each)
    elif isinstance(data, str):
        yield from map(float, re.findall(r"\d+(?:\.\d+)?", data.replace(",", "")))
    elif data is not None and not isinstance(data, bool):
        yield data


def as_written(number: float) -> set[str]:
    """Returns the texts of a number that tables have: itself, a percentage, MB, rounded."""
    forms = [f"{number:{form}}" for form in ("g", ".3g", ".4g", ".4f", ".0f")]
    return {*forms, f"{number:.0%}"[:-1], f"{number:.1%}"[:-1], f"{number / 1e6:.1f}"}


def numbers_of(row: Any) -> set[str]:
    """Returns the numbers that a row may show, from the paper or from results, as texts."""
    paper = row.model_dump(mode="json", include={"figure", "claim", "says", "size"})
    known = [*numbers_in(paper), *numbers_in([dict(shown.arms) for shown in row.shown])]
    for shown in row.shown:
        path = ROOT / f"{shown.experiment}.json"
        if path.exists():
            result = json.loads(path.read_text())
            rows = result["rows"]
            counts = [[count for _, count in each["tasks"].values()] for each in rows
                      if each.get("tasks")]  # fmt: skip
            known += numbers_in([{name: value for name, value in each.items() if name != "curve"}
                                 for each in rows if each["arm"] in shown.arms])  # fmt: skip
            known += numbers_in(result["experiment"])
            known += [sum(each["seeds"] for each in rows), sum(map(sum, counts))]
            known += [*map(len, counts), *map(sum, counts)]
    return set().union(*map(as_written, known))


def test_the_page_is_made_from_the_stored_results():
    assert SCRIPT["page"](CONTENT) == TEXT


def test_every_figure_and_numbered_claim_of_the_paper_has_a_row_and_a_section():
    assert [row.figure for row in CONTENT.rows] == FIGURES
    anchors = FOLDED.findall(TEXT)
    linked = re.findall(r'^\| <a href="#([^"]+)">', TEXT, re.MULTILINE)
    assert anchors == linked and len({*anchors}) == len(FIGURES)
    assert {*re.findall(r'href="#([^"]+)"', TEXT)} == {*anchors}


@pytest.mark.parametrize("row", CONTENT.rows, ids=lambda row: row.figure)
def test_every_number_of_a_row_is_the_papers_or_in_a_stored_result(row):
    anchor = FOLDED.findall(TEXT)[CONTENT.rows.index(row)]
    (section,) = (found[0] for found in FOLDED.finditer(TEXT) if found[1] == anchor)
    (line,) = re.findall(rf'^\| <a href="#{re.escape(anchor)}">.*', TEXT, re.MULTILINE)
    shown = re.sub(r"\]\([^)]*\)|<[^>]*>|95% interval|,", "", line + section)
    assert {*NUMBER.findall(shown)} <= numbers_of(row)


def test_no_other_number_is_on_the_page_than_counts_of_verdicts_and_the_legends():
    text = "\n".join(line for line in FOLDED.sub("", TEXT).splitlines() if "| <a" not in line)
    verdicts = [row.verdict or ("not judged" if any((ROOT / f"{shown.experiment}.json").exists()
                for shown in row.shown) else "not stored yet") for row in CONTENT.rows]  # fmt: skip
    head, _, counts = lines_of(text)[:3]
    assert counts == [str(verdicts.count(verdict)) for verdict in head]
    legend = [*"256", "95", *(str(number) for number in range(1, 6))]  # figures without a result
    text = re.sub(r"<a [^>]*>[^<]*</a>|`[^`]*`", "", text)
    assert {*NUMBER.findall(text)} <= {*legend, *counts}


def test_the_page_is_short_and_ends_with_five_sentences():
    assert sum(map(words, FOLDED.sub("", TEXT).splitlines())) <= 1200
    assert all(words(row.claim) <= 15 for row in CONTENT.rows)
    found = [each for line in paragraphs(page_text(TEXT)) for each in sentences(line)]
    assert [each for each in found if words(each) > 25] == []
    last = TEXT.splitlines()[-5:]
    assert [line.partition(" (<a")[0] for line in last] == [
        f"{number}. {belief.sentence}" for number, belief in enumerate(CONTENT.believe, 1)
    ]
    assert all(len(sentences(belief.sentence)) == 1 for belief in CONTENT.believe)


def test_every_row_names_experiments_with_its_arms_and_values():
    for row in CONTENT.rows:
        for shown in row.shown:
            experiment = load_experiment(ROOT / f"{shown.experiment}.yaml")
            assert {*shown.arms} <= {*experiment.compared}, row.figure
            assert {*(shown.values or ())} <= {*experiment.cases}, row.figure
            assert {*shown.first} <= {*shown.arms}, row.figure


def test_every_experiment_of_a_figure_but_the_choice_of_settings_is_in_a_row():
    shown = {each.experiment for row in CONTENT.rows for each in row.shown}
    stems = {f"experiments/paper/{path.stem}" for path in ROOT.glob("experiments/paper/*.yaml")}
    choices = {"experiments/paper/tuning", "experiments/paper/tuning_tools"}
    assert stems - shown == choices


@given(solved=st.integers(0, 10), sent=st.integers(1, 10**10))
def test_figures_sizes_and_costs_follow_from_the_result(tmp_path_factory, solved, sent):
    measures = {"bytes": sent, "data_at_home": 7_200_000}
    root = checkout(tmp_path_factory.mktemp("root"), solved, **measures)
    shown = [SHOWN | {"measures": ["success", "bytes"], "first": ["one"]}]
    page = SCRIPT["page"](content_of(verdict="holds", why="It is.", shown=shown), root)
    rate, megabytes = f"{10 * solved}% (", f"{sent / 1e6:.1f} of 7.2"
    (first,) = (cells for cells in lines_of(page) if "<a" in cells[0])
    assert first[2] == "holds" and f"success at alpha 0.1: One {rate}" in first[3]
    one, joint = (cells for cells in lines_of(page) if cells[0] in ("One", "Joint"))
    assert all(cell.startswith(rate) for cell in [*one[1:3], *joint[1:3]])
    assert (one[3:], joint[3:]) == ([megabytes], ["-"])  # once, as alpha does not change it
    sizes = {cells[0]: cells[2] for cells in lines_of(page) if len(cells) == 3}
    assert sizes["cost"] == "18 runs, 180 episodes"
    assert (sizes["network"], sizes["alpha"], sizes["scenes"]) == ("mlp 3 x 256", "0.1, 10", "30")


def test_what_is_not_stored_says_so_and_is_not_judged(tmp_path):
    root = checkout(tmp_path, None)
    assert "4b.yaml): not stored yet." in SCRIPT["page"](content_of(), root)
    with pytest.raises(ConfigError, match="none of its results is stored"):
        SCRIPT["page"](content_of(verdict="holds"), root)
    assert "not judged" in SCRIPT["page"](content_of(), checkout(tmp_path, 3))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"shown": [SHOWN | {"arms": {"on": "One"}}]}, "Did you mean 'one'"),
        ({"shown": [SHOWN | {"values": ["1"]}]}, "value of experiments/paper/4b: '1'"),
        ({"shown": [SHOWN | {"first": ["other"]}]}, "title of experiments/paper/4b: 'other'"),
        ({"shown": [SHOWN | {"measures": ["accuracy"]}]}, "has no accuracy"),
        ({"shown": [SHOWN | {"experiment": "experiments/paper/9"}]}, "is no experiment"),
        ({"size": {"robot": "5"}}, "Did you mean 'robots'"),
        ({"why": "it solves 92%."}, "not written by hand; found '9'"),
        ({"why": "in 3 of them."}, "found '3'"),
        ({"verdict": "not run"}, "`not run` is"),
        ({"verdict": "holds", "shown": []}, "none of its results is stored"),
        ({"verdict": "not run", "shown": [], "why": "no arm"}, "`why: because"),
        ({"verdict": "perhaps"}, "verdict"),
    ],
)
def test_rows_that_say_more_than_results_are_refused(row, words, tmp_path):
    with pytest.raises(FleetToolsError, match=words):
        SCRIPT["page"](content_of(**row), checkout(tmp_path, 3))


def test_a_conclusion_rests_on_rows(tmp_path):
    believe = {"sentence": "It works on MT10.", "rests_on": ["4a"]}  # a name with a digit
    rows = content_of(verdict="not run", shown=[], why="because of it").rows
    content = SCRIPT["PaperRows"](rows=rows, believe=[believe])
    with pytest.raises(FleetToolsError, match="row of a conclusion: '4a'"):
        SCRIPT["page"](content, tmp_path)
