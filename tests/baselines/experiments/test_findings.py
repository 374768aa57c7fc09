"""The figure and the table of "What we found": raw data of the same bytes, tests, and labels."""

import itertools
import re
import runpy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from support.processes import ROOT
from support.shares import few

from fleet_tools.baselines.experiments.form import Experiment, load_experiment
from fleet_tools.baselines.experiments.result import make_result
from fleet_tools.config.values import parse
from fleet_tools.utils.statistics import paired_difference, paired_p_value, told_apart

SCRIPT = runpy.run_path(str(ROOT / "docs/images/findings_images.py"))
MERGES, TASKS, SEEDS = ("average", "ensemble"), ("hammer", "knife"), 2
EXPERIMENT = parse(
    Experiment,
    {
        "vary": "upload_budget",
        "values": [100, 1000, 10_000],
        "seeds": SEEDS,
        "arms": {"raw": {"raw_data": {}}, **{arm: {"method": arm} for arm in MERGES}},
        "references": ["joint", "server"],
    },
    "The test",
)
SIZES = st.lists(st.integers(1, 10_000), min_size=SEEDS, max_size=SEEDS)


def panel_of(sizes: dict[str, list[int]], random: Random) -> Any:
    """Returns a panel with random successes: sizes are merges' uploads by seed."""

    def successes() -> dict[str, list[list[int]]]:
        rate = random.random()
        return {task: [[int(random.random() < rate) for _ in range(9)]] for task in TASKS}

    merged = {(arm, seed): successes() for arm in EXPERIMENT.compared for seed in range(SEEDS)}
    cells = []
    for arm, value, seed in itertools.product(EXPERIMENT.compared, EXPERIMENT.cases, range(SEEDS)):
        cell = {"arm": arm, "value": value, "seed": seed}
        if arm == "raw":
            sent = random.randint(int(value) // 2, int(value))
            cells.append({**cell, "uploaded": sent, "success": successes()})
            continue
        sent = sizes[arm][seed] if arm in sizes else 0
        fits = {"success": merged[arm, seed]} if sent <= int(value) else {}
        cells.append({**cell, "uploaded": sent, **fits})
    return SCRIPT["Panel"](EXPERIMENT, make_result(EXPERIMENT, cells), ["raw"])


def cells_of(panel: Any, row: Any) -> list[dict[str, Any]]:
    key = (row["arm"], row["value"])
    return [each for each in panel.result["cells"] if (each["arm"], each["value"]) == key]


def counts_of(panel: Any, one: Any, other: Any) -> list[tuple[int, int, int]]:
    """Returns by task in how many scenes only one row succeeded, only the other, and all scenes."""
    found = []
    for task in TASKS:
        rows = [[scene for cell in cells_of(panel, row) for scene in cell["success"][task][0]]
                for row in (one, other)]  # fmt: skip
        pairs = list(zip(*rows, strict=True))
        found.append((pairs.count((1, 0)), pairs.count((0, 1)), len(pairs)))
    return found


@few(10)
@given(SIZES, st.integers(0))
def test_merges_are_compared_with_the_best_raw_data_up_to_the_next_larger_upload(sizes, seed):
    panel = panel_of({arm: sizes for arm in MERGES}, Random(seed))
    rows = panel.rows("raw")
    sent = [sum(each["uploaded"] for each in cells_of(panel, row)) for row in rows]
    for merge in panel.merges.values():
        limit = 1.1 * min((size for size in sent if size >= sum(sizes)), default=max(sent))
        rates = [
            row["success"]["rate"] for row, size in zip(rows, sent, strict=True) if size <= limit
        ]
        assert panel.raw_above(merge)["success"]["rate"] == max(rates)


@few(10)
@given(SIZES, st.integers(0))
def test_differences_are_of_all_pairs_and_bold_where_all_tests_together_tell_them(sizes, seed):
    uploads = {arm: sizes for arm in MERGES}
    panels = {title: panel_of(uploads, Random(seed + k)) for k, title in enumerate("ab")}
    compared = [
        (panel, merge, other)
        for panel in panels.values()
        for merge in panel.merges.values()
        for other in (panel.shown["joint"], panel.raw_above(merge))
    ]
    counts = [counts_of(*each) for each in compared]
    p_values = [paired_p_value(each) for each in counts]
    for (panel, *rows), each, p in zip(compared, counts, p_values, strict=True):
        found = panel.difference(*rows)
        assert found["difference"] == pytest.approx(paired_difference(each), abs=1e-6)
        assert found["p"] == pytest.approx(p, rel=1e-3)
    text = SCRIPT["table"](panels, {"a": {"average": "weights 0.9"}})
    entries = re.findall(r"(\**)(-?\d+) \(-?\d+ to -?\d+\)\1, p ", text)
    assert [bool(bold) for bold, _ in entries] == told_apart(p_values)
    assert text.count("weights 0.9") == text.split("**b**")[0].count("| average |") <= 1


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(0, 1)), min_size=1, max_size=12))
def test_labels_cover_no_point_and_no_other_label(points):
    figure = Figure((5.2, 4), dpi=72)
    axes = figure.add_subplot(xscale="log", xlim=(0.5, 2000), ylim=(-0.05, 1.05))
    SCRIPT["place_labels"](axes, [(f"method {k}", *at, "k") for k, at in enumerate(points)])
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    places = axes.transData.transform(points)
    assert not any(box.contains(*place) for box in boxes for place in places)
    assert all(axes.bbox.fully_contains(*end) for box in boxes for end in box.get_points())


def test_a_panel_has_the_points_of_its_merges_and_labels_for_all_it_shows():
    panel = panel_of({arm: [500, 700] for arm in MERGES}, Random(0))
    (axes,) = SCRIPT["figure"]({"Keypoints": panel}).axes
    words = {text.get_text() for text in axes.texts}
    assert words == {"raw data", "joint training", "server alone", "average", "mean of actions"}
    points = [collection.get_offsets()[0] for collection in axes.collections[-3::2]]
    rates = [row["success"]["rate"] for row in panel.merges.values()]
    assert [tuple(each) for each in points] == [(0.6, pytest.approx(rate)) for rate in rates]


def test_every_policy_of_the_experiments_has_words():
    for panel in SCRIPT["SHOWN"]["experiments"].values():
        arms = load_experiment(ROOT / f"experiments/{panel['result']}.yaml").arms
        others = {**arms, **panel.get("others", {})}
        for name, (stem, arm) in panel.get("others", {}).items():
            others[name] = load_experiment(ROOT / f"experiments/{stem}.yaml").arms[arm]
        assert set(others) <= set(SCRIPT["SHOWN"]["policies"])
        assert {arm for arm, keys in others.items() if "raw_data" in keys} == set(panel["raw"])


def test_membership_is_read_from_the_table_of_attacks(tmp_path):
    file = tmp_path / "upload_privacy.md"
    assert SCRIPT["recognized"](file) == {}
    file.write_text(
        "| method | upload | membership | means |\n|---|---|---|---|\n"
        "| gate | weights | 0.9 (0.8 to 1) | |\n| gate | moments | 0.6 (0.5 to 0.7) | 3 |\n"
    )
    assert SCRIPT["recognized"](file) == {"gate": "weights 0.9; moments 0.6"}
