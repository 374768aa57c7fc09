"""Stored results of experiments: complete, of the sweeps beside them, and as the pages show."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.processes import ROOT

from fleet_tools.baselines.experiments.studies import output as studies
from fleet_tools.baselines.experiments.sweeps.markdown_page import markdown_page
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, planned_runs
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.config.values import load_yaml

EXPERIMENTS = ROOT / "experiments"
SWEEPS = sorted(EXPERIMENTS.glob("*.yaml"))
MEASURED = [path for path in SWEEPS if path.with_suffix(".json").exists()]
STUDIES = sorted((EXPERIMENTS / "studies").glob("*.json"))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_sweep_can_be_planned(path):
    sweep = load_yaml(Sweep, path)
    runs = planned_runs(sweep.model_copy(update={"references": ()}))  # references read data
    assert len(runs) == len(sweep.arms) * len(sweep.values) * sweep.seeds


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_results_are_of_their_sweep(path):
    sweep = load_yaml(Sweep, path)
    results = json.loads(path.with_suffix(".json").read_text())
    assert results["vary"] == sweep.vary and not results["failed"]
    rows = {(row["arm"], json.dumps(row[sweep.vary])): row for row in results["rows"]}
    arms = (*sweep.arms, *sweep.references)
    assert rows.keys() == {(arm, json.dumps(value)) for arm in arms for value in sweep.values}
    assert all(row["seeds"] == sweep.seeds for row in rows.values())
    page = markdown_page(sweep, results["rows"], path.stem)
    assert path.with_suffix(".md").read_text() == page


@pytest.mark.parametrize("folder", ["metaworld_barriers"])
def test_barriers_are_between_the_policies_of_the_fleets_beside_them(folder: str):
    fleets = {
        path.stem: load_yaml(FleetConfig, path) for path in (EXPERIMENTS / folder).glob("*.yaml")
    }
    report = json.loads((EXPERIMENTS / folder / "barriers.json").read_text())
    assert not report["failed"]
    measured = {
        Path(fleet).name: each["data"] for each in report["sets"] for fleet in each["fleets"]
    }
    assert measured == {name: list(fleet.data) for name, fleet in fleets.items()}
    for curve in report["curves"]:
        assert max(curve["robots"]) < fleets[Path(curve["fleet"]).name].robots
        values = curve["loss"]["values"]
        height = max(value - (values[0] + values[-1]) / 2 for value in values)
        assert curve["loss"]["height"] == pytest.approx(height)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_studies_are_complete_and_as_the_pages_show(path):
    results = json.loads(path.read_text())
    assert path.with_suffix(".md").read_text() == studies.markdown_page(results, path.stem)
    kinds = {(entry["row"], entry["column"]) for entry in results["entries"]}
    seeds = {entry["seed"] for entry in results["entries"]}
    assert len(results["entries"]) == len(kinds) * len(seeds)
    assert f"--page experiments/studies/{path.stem}.md" in results["command"]
