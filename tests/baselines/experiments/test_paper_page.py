"""The page on the paper's figures: rows follow from stored results, and words hold no figures."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT

from fleet_tools.baselines.experiments.form import Experiment, load_experiment
from fleet_tools.baselines.experiments.result import as_json, make_result
from fleet_tools.config.values import load_yaml, parse
from fleet_tools.errors import ConfigError

SCRIPT = runpy.run_path(str(ROOT / "docs/results/paper_page.py"))
CONTENT = load_yaml(SCRIPT["PaperRows"], SCRIPT["ROWS"])
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
}


def rows_of(**row: Any) -> Any:
    """Returns the content of a page of one row, on the experiment `experiments/paper/4b`."""
    shown = [{"experiment": "experiments/paper/4b", "arms": {"one": "One"}}]
    base = {"figure": "4b", "says": "It is best.", "shown": shown}
    return parse(SCRIPT["PaperRows"], {"rows": [base | row]}, "The page")


def checkout(folder: Path, solved: int | None) -> Path:
    """Makes a checkout with the experiment, and with a result of ten scenes if some are solved."""
    path = folder / "experiments" / "paper" / "4b.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(FORM))
    if solved is not None:
        experiment = parse(Experiment, FORM, "The test")
        row = [int(scene < solved) for scene in range(10)]
        cells = [
            {"arm": arm, "value": value, "seed": seed, "success": {"hammer": [row]}}
            for arm in experiment.arms
            for value in experiment.cases
            for seed in range(3)
        ]
        path.with_suffix(".json").write_text(as_json(make_result(experiment, cells)))
    return folder


def test_the_page_is_made_from_the_stored_results():
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["page"](CONTENT)


def test_every_row_names_experiments_with_its_arms_and_values():
    for row in CONTENT.rows:
        for shown in row.shown:
            experiment = load_experiment(ROOT / f"{shown.experiment}.yaml")
            assert {*shown.arms} <= {*experiment.compared}, row.figure
            assert {*(shown.values or ())} <= {*experiment.cases}, row.figure


def test_every_experiment_of_a_figure_but_the_choice_of_settings_is_in_a_row():
    shown = {each.experiment for row in CONTENT.rows for each in row.shown}
    stems = {f"experiments/paper/{path.stem}" for path in ROOT.glob("experiments/paper/*.yaml")}
    assert stems - shown == {"experiments/paper/tuning"}


@given(solved=st.integers(0, 10))
def test_figures_and_sizes_follow_from_the_result(tmp_path_factory, solved):
    root = checkout(tmp_path_factory.mktemp("root"), solved)
    line = SCRIPT["page"](rows_of(verdict="holds", why="it is."), root).splitlines()[-1]
    assert line.count(f"{10 * solved}% (") == 2  # one for each value
    assert "One, success: " in line and "**holds**: it is." in line
    assert "5 robots, 60 epochs, mlp 3 x 256, tasks: 1, 30 episodes a point, seeds: 3" in line


def test_what_is_not_stored_says_so_and_is_not_judged(tmp_path):
    root = checkout(tmp_path, None)
    assert "not stored yet" in SCRIPT["page"](rows_of(), root)
    with pytest.raises(ConfigError, match="none of its results is stored"):
        SCRIPT["page"](rows_of(verdict="holds"), root)
    assert "**not judged**" in SCRIPT["page"](rows_of(), checkout(tmp_path, 3))
    for shown, words in (
        ({"arms": {"none": "None"}}, "no result of 'none'"),
        ({"arms": {"one": "One"}, "measures": ["accuracy"]}, "has none of accuracy"),
        ({"arms": {"one": "One"}, "experiment": "experiments/paper/9"}, "is no experiment"),
    ):
        with pytest.raises(ConfigError, match=words):
            given = {"experiment": "experiments/paper/4b"} | shown
            SCRIPT["page"](rows_of(shown=[given]), root)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"why": "it solves 92%."}, "not written by hand; found '9'"),
        ({"why": "in 3 of them."}, "found '3'"),
        ({"verdict": "not run"}, "if and only if"),
        ({"verdict": "holds", "shown": []}, "if and only if"),
        ({"verdict": "not run", "shown": [], "why": "no arm"}, "because"),
        ({"verdict": "perhaps"}, "verdict"),
    ],
)
def test_rows_that_say_more_than_results_are_refused(row, words):
    with pytest.raises(ConfigError, match=words):
        rows_of(**row)


def test_names_with_digits_are_no_figures():
    assert rows_of(why="as on MT10.").rows[0].why == "as on MT10."
