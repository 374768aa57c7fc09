"""Results: rows over seeds, pages and figures; stored ones are complete and as pages show."""

import itertools
import json
import math
import runpy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from support.processes import ROOT

from fleet_tools.baselines import experiment as program
from fleet_tools.baselines.experiments.figures import set_scale
from fleet_tools.baselines.experiments.form import Experiment, load_experiment
from fleet_tools.baselines.experiments.page import markdown_page
from fleet_tools.baselines.experiments.result import (
    as_json,
    changes,
    make_result,
    read_result,
    summarized,
)
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.utils.crossed_statistics import crossed_interval

LAWS = "_law.json"  # predictions, see docs/results/scaling_law.py
STORED = sorted(
    path.with_suffix(".yaml")
    for path in ROOT.glob("experiments/**/*.json")
    if not path.name.endswith(LAWS)
)


def an_experiment(**content) -> Experiment:
    arms = {"a": {}, "b": {}}
    return parse(Experiment, {"arms": arms, "vary": "x", "values": [1, 2]} | content, "The test")


def cells_of(experiment: Experiment, **value) -> list[dict]:
    """Returns cells of all arms, values and seeds."""
    return [
        {"arm": arm, "value": case, "seed": seed, **value}
        for arm in experiment.compared
        for case in experiment.cases
        for seed in range(experiment.seeds)
    ]


@given(st.randoms(use_true_random=False))
def test_the_order_in_which_cells_came_does_not_matter(random):
    experiment = an_experiment()
    cells = [each | {"loss": 0.1 * k} for k, each in enumerate(cells_of(experiment))]
    shuffled = random.sample(cells, len(cells))
    assert make_result(experiment, cells) == make_result(experiment, shuffled)


def test_a_row_has_the_spread_of_numbers_and_infinity_is_one():
    cells = [{"arm": "a", "value": "1", "seed": k, "cost": c} for k, c in enumerate([2, None, 1])]
    assert summarized("a", "1", cells)["cost"] == {"median": 2, "low": 1, "high": None}
    assert summarized("a", "2", cells) == {"arm": "a", "value": "2", "seeds": 0}


def test_the_success_rate_is_over_training_runs_and_scenes():
    solved = [[1, 1, 0, 0], [1, 1, 1, 0]]
    cells = [
        {"arm": "a", "value": "1", "seed": seed, "success": {"hammer": [row]}, "fine_tuned": {}}
        for seed, row in enumerate(solved)
    ]
    for own_scenes in (False, True):
        row = summarized("a", "1", cells, own_scenes)
        low, high = crossed_interval([np.array(solved, float)], own_scenes)
        assert row["success"] == {"rate": 0.625, "low": low, "high": high}
    assert row["tasks"] == {"hammer": (5, 8)} and row["fine_tuned"] is None


def test_results_survive_their_file_and_others_are_refused(tmp_path):
    experiment = an_experiment()
    result = make_result(experiment, cells_of(experiment, loss=0.25), [{"arm": "a", "why": "x"}])
    path = tmp_path / "result.json"
    path.write_text(as_json(result))
    assert read_result(path) == (experiment, json.loads(json.dumps(result)))
    for text in ("{", "[]", "{}", '{"rows": [], "cells": [], "failed": []}', '{"rows": NaN}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"result\.json is no"):
            read_result(path)


def test_the_page_lists_more_tasks_downwards_and_fewer_sideways():
    experiment = an_experiment(values=[1], seeds=1)
    few, many = {"push": [[1, 0]], "pull": [[0, 0]]}, {"reach": [[1, 1]]}
    page = markdown_page(
        experiment, make_result(experiment, cells_of(experiment, success=few)), "p", ()
    )
    assert "|  | pull | push |" in page and "| a | 0 of 2 | 1 of 2 |" in page
    result = make_result(experiment, cells_of(experiment, success=few | many))
    page = markdown_page(experiment, result, "p", ())
    assert "|  | a | b |" in page and "| reach | 2 of 2 | 2 of 2 |" in page
    result = make_result(experiment, cells_of(experiment, success=many))
    assert "by task" not in markdown_page(experiment, result, "p", ())


def test_results_lie_beside_the_settings_that_made_them():
    folders = (ROOT / "experiments", ROOT / "experiments" / "studies")
    files = [path for folder in folders for path in folder.glob("*.*")]
    results = [path for path in files if path.suffix in (".json", ".md", ".png")]
    made = {path.with_name(path.stem.removesuffix("_bytes")) for path in results}
    settings = {path.with_suffix("") for path in files if path.suffix == ".yaml"}
    assert made - settings == {ROOT / "experiments" / "README"}


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_results_are_of_their_experiment_complete_and_as_pages_show(path):
    experiment = load_experiment(path)
    stored, result = read_result(path.with_suffix(".json"))
    assert not changes(stored, experiment) and not changes(experiment, stored)
    assert not result["failed"]
    rows = {(row["arm"], row["value"]) for row in result["rows"]}
    assert rows == {(arm, value) for arm in experiment.compared for value in experiment.cases}
    assert all(row["seeds"] == experiment.seeds for row in result["rows"])
    if result["cells"]:
        again = make_result(stored, result["cells"])["rows"]
        assert json.loads(json.dumps(again)) == result["rows"]
    drawn = (f"{path.stem}{each}" for each in ("_months.webp", ".png", "_bytes.png"))
    figures = [name for name in drawn if path.with_name(name).exists()]
    assert path.with_suffix(".md").read_text() == markdown_page(
        experiment, result, path.stem, figures
    )
    for line in (line for cell in result["cells"] for line in cell.get("lines", ())):
        values = line["loss"]["values"]
        height = max(value - (values[0] + values[-1]) / 2 for value in values)
        assert line["loss"]["height"] == pytest.approx(height)


@pytest.mark.parametrize("stem", ["metaworld_one_merge", "metaworld_rounds", "studies/mnist_3x512"])
def test_pages_and_figures_are_rendered_from_stored_results(stem, tmp_path, capsys):
    path = ROOT / "experiments" / f"{stem}.yaml"
    assert program.main([str(path), "--render", "--output", str(tmp_path), "--quiet"]) == 0
    page = tmp_path / f"{path.stem}.md"
    assert page.read_text() == path.with_suffix(".md").read_text()
    with Image.open(page.with_suffix(".png")) as image:
        assert np.unique(np.asarray(image)).size > 10
    other = tmp_path / "nothing.yaml"
    other.write_text(path.read_text().replace("../common", str(path.parent / "../common")).replace(
        "extends: common", f"extends: {path.parent / 'common'}"))  # fmt: skip
    assert program.main([str(other), "--render", "--quiet"]) == 2
    assert "is not a result of an experiment" in capsys.readouterr().err


@pytest.mark.parametrize("highest", [0.02, 0.9, 9.0, 11.0, 400.0, 1e6])
def test_labels_of_losses_do_not_overlap(highest):
    figure = Figure(figsize=(4, 3))
    axes = figure.add_subplot()
    axes.plot([0.01, highest], [0, 1])
    set_scale(axes, "loss", horizontal=True)
    figure.canvas.draw()
    low, high = axes.get_xlim()
    ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    shown = [label.get_window_extent() for tick, label in ticks if low <= tick <= high]
    assert len(shown) >= 2 and math.isfinite(high)
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(shown))


def test_the_table_of_what_we_found_is_that_of_the_stored_results():
    script = runpy.run_path(str(ROOT / "docs/images/findings_images.py"))
    tables = script["TABLES"]
    text = script["table"](script["read_panels"](), script["attacks"]())
    assert (tables / "findings.md").read_text(encoding="utf-8") == text
