"""The arena of linear control: what the paper's appendix says of its merges, in a small fleet."""

import math

import pytest

from fleet_tools.baselines.experiments.form import Experiment, planned_runs
from fleet_tools.baselines.linear_control.arena import LinearControl
from fleet_tools.config.values import parse
from fleet_tools.errors import FleetToolsError


def costs(folder, **base) -> dict[str, float]:
    """Returns J / J* of each method and reference, of seed 0."""
    arms = {name: {"method": name} for name in ("average", "permutation", "least_squares")}
    content = {"arms": arms, "base": base, "references": ["single", "joint"], "seeds": 1}
    arena = LinearControl(experiment := parse(Experiment, content, "The test"))
    found = {
        run.arm: arena.measure(arena.plan(run), folder)["cost"] for run in planned_runs(experiment)
    }
    return {arm: math.inf if cost is None else cost for arm, cost in found.items()}


def test_static_laws_of_one_task_are_the_optimum_however_they_are_merged(tmp_path):
    assert costs(tmp_path, controllers="static") == pytest.approx(
        dict.fromkeys(("average", "permutation", "least_squares", "single", "joint"), 1.0)
    )


def test_no_static_law_is_optimal_for_ten_tasks(tmp_path):
    found = costs(tmp_path, controllers="static", tasks=10)
    assert found.pop("single") == pytest.approx(1.0)
    assert all(1.1 < cost < 1.5 for cost in found.values())


def test_components_that_no_path_joins_are_merged_over_gl_alone(tmp_path):
    found = costs(tmp_path, controllers="opposite", unstable=True)
    assert found["average"] == found["permutation"] == math.inf
    assert found["least_squares"] == pytest.approx(1.0)


def test_fleets_are_learned_once(tmp_path, monkeypatch):
    first = costs(tmp_path, controllers="static", tasks=10)
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(cells) == 2  # the robots' controllers, and the joint one
    assert costs(tmp_path, controllers="static", tasks=10) == first
    assert all(path.stat().st_mtime_ns == then for path, then in cells.items())


def test_unknown_methods_and_keys_are_refused(tmp_path):
    for base in ({"tasks": 3}, {"controllers": "fuzzy"}):
        with pytest.raises(FleetToolsError):
            costs(tmp_path, **base)
    arena = LinearControl(experiment := parse(Experiment, {"arms": {"a": {"method": "x"}}}, "T"))
    with pytest.raises(FleetToolsError, match="least_squares"):
        arena.plan(planned_runs(experiment)[0])
