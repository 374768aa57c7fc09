"""Stored results of the experiments are of the sweeps beside them, whole, as they were run."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from fleet_tools.baselines.experiments.sweeps.page import page
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, cells
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.config.values import load_yaml

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
SWEEPS = sorted(EXPERIMENTS.glob("*.yaml"))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_results_are_of_their_sweep(path):
    sweep = load_yaml(Sweep, path)
    planned = cells(sweep.model_copy(update={"references": ()}))  # references read data
    assert len(planned) == len(sweep.arms) * len(sweep.values) * sweep.seeds
    told = json.loads(path.with_suffix(".json").read_text())
    assert told["vary"] == sweep.vary and not told["failed"]
    rows = {(row["arm"], json.dumps(row[sweep.vary])): row for row in told["rows"]}
    arms = (*sweep.arms, *sweep.references)
    assert rows.keys() == {(arm, json.dumps(value)) for arm in arms for value in sweep.values}
    assert all(row["seeds"] == sweep.seeds for row in rows.values())
    assert path.with_suffix(".md").read_text() == page(sweep, told["rows"], path.stem)


def test_barriers_are_between_the_policies_of_the_fleets_beside_them():
    folder = EXPERIMENTS / "barriers"
    fleets = {path.stem: load_yaml(FleetConfig, path) for path in folder.glob("*.yaml")}
    told = json.loads((folder / "barriers.json").read_text())
    assert not told["failed"]
    assert {each["title"]: each["data"] for each in told["sets"]} == {
        name: list(fleet.data) for name, fleet in fleets.items()
    }
    for each in told["curves"]:
        assert Path(each["fleet"]).name == each["set"]
        assert max(each["robots"]) < fleets[each["set"]].robots
        values = each["loss"]["values"]
        above = max(value - (values[0] + values[-1]) / 2 for value in values)
        assert each["loss"]["height"] == pytest.approx(above)
