"""Experiments with lives: transfers, controls, and the page by month."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import QuadMesh
from PIL import Image, ImageSequence
from support.experiment_cases import content_of, result_in
from support.fleet_cases import write_data

from fleet_tools.baselines import experiment as program
from fleet_tools.baselines.experiments.fleets import ToolUse
from fleet_tools.baselines.experiments.form import Experiment, planned_runs
from fleet_tools.baselines.experiments.life import life_measures, life_of, success_by_month
from fleet_tools.baselines.experiments.life_figure import life_figure, marks, save_life
from fleet_tools.baselines.experiments.page import markdown_page
from fleet_tools.baselines.experiments.result import summarized
from fleet_tools.config.values import parse
from fleet_tools.utils.statistics import auc

MLP = {"body": {"type": "mlp", "layers": 2, "width": 6}}
EVENTS = [
    {"month": 1, "robot": "eve", "type": "arrives", "task": "hammer", "episodes": 4},
    {"month": 1, "robot": "ann", "type": "arrives", "task": "hammer", "episodes": 6},
    {"month": 2, "robot": "bob", "type": "arrives", "task": "hammer", "episodes": 6},
    {"month": 3, "robot": "ann", "type": "leaves", "forget": True},
]


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("life") / "data", [3, 5, 2, 4] * 6)


def content(data: Path, **changes: Any) -> dict[str, Any]:
    """Returns the content of a small experiment with a life."""
    base = {"policy": MLP, "held_out": 0.2, "training": {"epochs": 1, "batch_size": 8}}
    arms = {
        "average": {"method": "naive_average", "initialization": "common"},
        "without": {
            "method": "naive_average",
            "initialization": "common",
            "life.control": "without",
        },
        "gate": {"method": "naive_average", "last_method": "density_gated_ensemble"},
    }
    own = {"life": {"months": 3, "events": EVENTS}, "base": base, "arms": arms, "seeds": 1}
    names = ["joint", "single", "last_month", "sequential"]
    kept = {k: v for k, v in content_of(data).items() if k not in ("vary", "values")}
    return kept | own | {"references": names} | changes


def run(folder: Path, content: dict[str, Any]) -> int:
    """Runs the program, whose results are in `folder/out/small.*`."""
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return program.main([str(path), "--output", str(folder / "out"), "--workers", "0", "--quiet"])


def rollouts(row: list[int]) -> dict[str, Any]:
    """Returns the rollouts of a policy in the tasks a, b and c."""
    return {
        t: {"successes": k, "episodes": 10, "solved": list(range(k))}
        for t, k in zip("abc", row, strict=True)
    }


@given(
    matrix=st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=2, max_size=5),
    first=st.lists(st.integers(1, 5), min_size=3, max_size=3),
    kept=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_transfers_are_differences_within_the_matrix(
    matrix: list[list[int]], first: list[int], kept: list[bool]
) -> None:
    months, tasks = len(matrix), ["a", "b", "c"]
    first = [min(month, months) for month in first]

    stays = [
        {"robot": t, "tasks": [t], "months": list(range(m, months + 1)), "there": True}
        for t, m in zip(tasks, first, strict=True)
    ]
    life = {
        "stays": stays,
        "kept_tasks": [task for task, stays in zip(tasks, kept, strict=True) if stays],
        "uploaded_in_a_month": 2000,
        "kept_bytes": 0,
        "forgotten": [],
        "personal": [],
    }
    report = {"life": life, "robots": [], "curve": [{"rollouts": rollouts(r)} for r in matrix]}
    found, R = life_measures(report), np.array(matrix) / 10
    row = summarized("arm", "", [{"arm": "arm", "value": "", "seed": 0, **found}])
    old = [k for k in range(3) if kept[k] and first[k] < months]
    late = [k for k in range(3) if first[k] > 1]
    assert ("backward" in found) == bool(old) and ("forward" in found) == bool(late)
    if old:
        expected = np.mean([R[-1, k] - R[first[k] - 1, k] for k in old])
        assert row["backward"]["difference"] == pytest.approx(expected, abs=1e-6)
    if late:
        expected = np.mean([R[first[k] - 2, k] for k in late])
        assert row["forward"]["rate"] == pytest.approx(expected, abs=1e-6)
    assert found["month_kb"] == 2


@given(
    last=st.lists(st.integers(0, 10), min_size=3, max_size=3),
    home=st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=3, max_size=3),
    there=st.lists(st.booleans(), min_size=3, max_size=3),
    kept=st.integers(1, 3),
    alone=st.booleans(),
)
def test_policies_at_home_and_shared_ones_are_of_the_robots_that_are_there(
    last: list[int], home: list[list[int]], there: list[bool], kept: int, alone: bool
) -> None:
    tasks = ["a", "b", "c"]

    entries = [{"robot": k, "rollouts": rollouts(home[k])} for k in range(3) if alone or there[k]]
    life = {
        "stays": [
            {"robot": t, "tasks": [t], "months": [1], "there": here}
            for t, here in zip(tasks, there, strict=True)
        ],
        "kept_tasks": tasks[:kept],
        "uploaded_in_a_month": 0,
        "kept_bytes": 0,
        "forgotten": [],
        "personal": [] if alone else entries,
    }
    robots = entries if alone else [{"robot": k} for k in range(3)]
    report = {"life": life, "robots": robots, "curve": [{"rollouts": rollouts(last)}]}
    found, here = life_measures(report), [k for k in range(kept) if there[k]]
    others = [(k, j) for k in range(3) for j in range(kept) if there[k] and j != k]
    assert ("personal_own" in found) == bool(here)
    assert ("shared_own" in found) == (bool(here) and not alone)
    if here:
        assert found["personal_own"] == pytest.approx(np.mean([home[k][k] / 10 for k in here]))
    if here and not alone:
        assert found["shared_own"] == pytest.approx(np.mean([last[k] / 10 for k in here]))
    if others:
        assert found["personal_others"] == pytest.approx(
            np.mean([home[k][j] / 10 for k, j in others])
        )
    if others and not alone:
        assert found["shared_others"] == pytest.approx(np.mean([last[j] / 10 for _, j in others]))


scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=8)


@given(scores, scores)
def test_the_area_is_the_share_of_pairs_in_order(one: list[float], other: list[float]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a in one for b in other]
    area, low, high = auc(one, other)
    assert area == pytest.approx(np.mean(pairs), abs=1e-6)
    assert 0 <= low <= area <= high <= 1
    assert auc(other, one)[0] == pytest.approx(1 - area, abs=2e-6)


def test_arms_and_references_are_lives_of_the_same_robots(data: Path) -> None:
    experiment = parse(Experiment, content(data), "The test")
    arena = ToolUse(experiment)
    configs = {each.arm: arena.plan(each).config for each in planned_runs(experiment)}
    lives = {name: config.life for name, config in configs.items()}
    controls = {name: life.control for name, life in lives.items() if life is not None}
    assert controls == {
        **{"average": None, "without": "without", "gate": None, "joint": "joint"},
        **{"single": "alone", "last_month": "last_month", "sequential": "sequential"},
    }
    assert len({life.events for life in lives.values() if life is not None}) == 1
    assert [configs[name].rounds for name in ("average", "joint", "sequential")] == [3, 1, 3]


def test_an_experiment_runs_its_lives_and_resumes(data: Path, tmp_path: Path) -> None:
    assert run(tmp_path, content(data)) == 0
    result = result_in(tmp_path)
    assert not result["failed"]
    cells = {cell["arm"]: cell for cell in result["cells"]}
    assert {name for name in cells["average"] if name.startswith("told_")} == {
        "told_before",
        "told_after",
        "told_end",
    }
    assert [len(cells[name]["curve"]) for name in ("gate", "sequential", "joint")] == [3, 3, 1]
    assert cells["average"]["month_kb"] > 0 and cells["gate"]["kept_kb"] > 0
    page = (tmp_path / "out" / "small.md").read_text()
    assert "kB that a robot uploads in a month" in page and "Membership" in page
    assert run(tmp_path, content(data)) == 0
    assert result_in(tmp_path) == result


def drawn(data: Path, matrix: np.ndarray, **changes: Any) -> tuple[Experiment, list[Any]]:
    """Returns an experiment, and cells with successes of its first two arms.

    Args:
        data: Its data.
        matrix: (months, tasks, scenes): 1 for a success.
        changes: Changed keys of the experiment.
    """
    experiment = parse(Experiment, content(data, references=[], **changes), "The test")
    curve = [
        {"success": {name: [scenes] for name, scenes in zip("ab", month, strict=True)}}
        for month in matrix.tolist()
    ]
    cells = [{"arm": arm, "value": "", "seed": 0, "curve": curve} for arm in ("average", "without")]
    return experiment, cells


MATRIX = np.array([[[1, 0], [0, 0]], [[1, 1], [1, 0]], [[1, 1], [1, 1]]])


def test_the_page_has_the_matrix_of_success(data: Path) -> None:
    experiment, cells = drawn(data, MATRIX)
    result = {"rows": [], "cells": cells, "failed": []}
    page = markdown_page(experiment, result, "x", ["x_months.webp"])
    table = page[page.index("## Success by month: average") :].splitlines()
    assert table[2:7] == [
        "| month | a | b |",
        "| --- | --- | --- |",
        "| 1 | 50% | 0% |",
        "| 2 | 100% | 50% |",
        "| 3 | 100% | 100% |",
    ]
    assert 'srcset="x_months.png"><img src="x_months.webp"' in page


def test_the_animation_has_a_frame_for_each_month_and_ends_with_the_still(
    data: Path, tmp_path: Path
) -> None:
    experiment, cells = drawn(data, MATRIX)
    assert save_life(experiment, cells, tmp_path, "x") == ["x_months.webp"]
    with Image.open(tmp_path / "x_months.webp") as file:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(file)]
    with Image.open(tmp_path / "x_months.png") as still:
        np.testing.assert_array_equal(frames[-1], np.asarray(still))
    assert len(frames) == 3 and len({frame.tobytes() for frame in frames}) == 3
    assert all((frame[0] == 255).all() for frame in frames)  # a bright card on a dark page
    assert save_life(experiment, [], tmp_path, "y") == []


def test_a_frame_has_the_rows_and_the_marks_of_its_months(data: Path) -> None:
    events = [
        {"month": 1, "robot": "eve", "type": "arrives", "task": "a", "episodes": 1},
        {"month": 1, "robot": "ann", "type": "arrives", "task": "b", "episodes": 1},
        {"month": 2, "robot": "eve", "type": "is_away"},
        {"month": 3, "robot": "ann", "type": "leaves", "forget": True},
        {"month": 3, "robot": "eve", "type": "leaves"},
    ]
    experiment, cells = drawn(data, MATRIX, life={"months": 3, "events": events})
    lives = [life_of(experiment, arm, "") for arm in ("average", "without")]
    of_eve = [(1, "a", "arrives"), (2, "a", "is away"), (3, "a", "leaves")]
    of_ann = [(1, "b", "arrives"), (3, "b", "is forgotten")]
    assert [sorted(marks(life, "ab")) for life in lives] == [sorted(of_eve + of_ann), of_eve]
    matrices = success_by_month(experiment, cells)
    for month in (1, 2, 3):
        average, without = life_figure(experiment, matrices, month).axes
        for axes, expected in ((average, of_eve + of_ann), (without, of_eve)):
            (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
            np.testing.assert_array_equal(mesh.get_array(), MATRIX.mean(2)[:month])
            places = [np.floor(np.ravel(line.get_xydata())) for line in axes.get_lines()]
            assert sorted((int(y) + 1, "ab"[int(x)]) for x, y in places) == sorted(
                each[:2] for each in expected if each[0] <= month
            )
            here = {1: ["a", "b"], 2: ["b"], 3: []}[month]  # without ann, nobody has b
            colors = {label.get_text(): label.get_color() for label in axes.get_xticklabels()}
            black = [name for name, color in colors.items() if color == "black"]
            assert black == [name for name in here if axes is average or name == "a"]


def test_a_robot_with_another_arm_has_tasks_of_its_own(data: Path) -> None:
    events = [
        {"month": 1, "robot": "eve", "type": "arrives", "task": "a", "arm": "panda", "episodes": 1},
        {"month": 2, "robot": "ann", "type": "arrives", "task": "a", "arm": "ur5e", "episodes": 1},
        {"month": 3, "robot": "eve", "type": "leaves"},
    ]
    experiment, _ = drawn(data, MATRIX, life={"months": 3, "events": events})
    life, panda = life_of(experiment, "average", ""), [(1, "a", "arrives"), (3, "a", "leaves")]
    assert sorted(marks(life, ["a", "a@ur5e"])) == sorted([*panda, (2, "a@ur5e", "arrives")])
    assert sorted(marks(life, ["a"])) == panda


@given(areas=st.lists(st.floats(0, 1), min_size=1, max_size=5), half=st.floats(0, 0.2))
def test_membership_of_independent_splits_has_a_narrower_interval(
    areas: list[float], half: float
) -> None:
    cells = [
        {"arm": "arm", "value": "", "seed": k, "told_end": (area, half)}
        for k, area in enumerate(areas)
    ]
    found = summarized("arm", "", cells)["told_end"]
    assert found["rate"] == pytest.approx(np.mean(areas))
    assert found["high"] - found["low"] == pytest.approx(2 * half / np.sqrt(len(areas)), abs=1e-9)


def test_a_missing_task_is_an_error_with_its_line(data: Path, tmp_path: Path, capsys: Any) -> None:
    events = [*EVENTS[:2], EVENTS[2] | {"task": "wrensh"}]
    assert run(tmp_path, content(data, life={"months": 3, "events": events})) == 2
    lines = (tmp_path / "small.yaml").read_text().splitlines()
    line = 1 + [k for k, text in enumerate(lines) if text.startswith("  - ")][2]
    assert f"small.yaml, line {line}: life.events.2" in capsys.readouterr().err


def test_raw_data_are_sent_once_and_not_by_month(data: Path, tmp_path: Path, capsys) -> None:
    assert run(tmp_path, content(data, arms={"raw": {"raw_data": {}}}, references=[])) == 2
    assert "and a life has months" in capsys.readouterr().err
