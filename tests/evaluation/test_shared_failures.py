"""Whether runs fail in the same scenes: the test against chance, and results that are read."""

import json
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_failures import failures, main, shared
from support.submitted import SMALL, random_evaluation, write

small = st.integers(2, 3).flatmap(
    lambda runs: st.lists(
        st.lists(st.booleans(), min_size=4, max_size=4), min_size=runs, max_size=runs
    )
)


@given(small, st.sampled_from(["aaaa", "aabb", "abbb"]))
def test_chance_and_p_are_those_of_all_permutations_within_splits(runs, splits):
    failed = np.array(runs)
    orders = [
        order
        for order in permutations(range(4))
        if all(splits[a] == splits[b] for a, b in enumerate(order))
    ]
    counts = [
        sum(
            int((one[list(first)] & other[list(second)]).sum())
            for (one, first), (other, second) in combinations(zip(failed, chosen, strict=True), 2)
        )
        for chosen in product(orders, repeat=len(failed))
    ]
    both, chance, p = shared(failed, list(splits), 4000, 0)
    assert both == sum(int((a & b).sum()) for a, b in combinations(failed, 2))
    assert chance == pytest.approx(np.mean(counts))
    assert p == pytest.approx(np.mean(np.array(counts) >= both), abs=0.04)


def test_splits_that_are_harder_are_no_shared_failures():
    generator = np.random.default_rng(0)
    splits = ["easy"] * 60 + ["hard"] * 60
    chances = np.array([0.02] * 60 + [0.6] * 60)
    values = [
        shared(generator.random((3, 120)) < chances, splits, 500, seed)[2] for seed in range(200)
    ]
    assert np.mean(np.array(values) <= 0.05) < 0.1
    assert shared(np.array([[True, *[False] * 119]] * 3), splits, 500, 0)[2] < 0.01


def written(method: Path, training_runs: int) -> None:
    """Writes results of a method with made-up outcomes, one for each training run and task."""
    for run, task in product(range(training_runs), SMALL.tasks):
        made = random_evaluation(0.5, run, training_seed=run, tasks=[task])
        write(made, method / str(run) / task)


def test_results_are_read_by_run_and_level(tmp_path, capsys):
    written(tmp_path / "mine", 3)
    runs = failures(tmp_path / "mine", SMALL.level_name)
    assert {*runs} == {0, 1, 2}
    assert all(len(run) == len(SMALL.trials()) for run in runs.values())
    assert failures(tmp_path / "mine", "another") == {}
    lines = (tmp_path / "mine/1/knife/episodes.jsonl").read_text().splitlines()
    stored = {(e["task"], e["split"], e["index"]): e["outcome"] for e in map(json.loads, lines)}
    assert {k: v != "success" for k, v in stored.items()}.items() <= runs[1].items()

    given = [str(tmp_path / "mine"), "--level", SMALL.level_name]
    assert main([*given, "--draws", "100", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["task"] for row in rows] == ["hammer", "knife"]


def test_a_method_that_was_trained_once_is_refused(tmp_path, capsys):
    written(tmp_path / "mine", 1)
    assert main([str(tmp_path / "mine"), "--level", SMALL.level_name]) == 2
    assert "trained several times" in capsys.readouterr().err
