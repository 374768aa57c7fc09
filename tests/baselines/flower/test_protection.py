"""Protected rounds over Flower: sums of which no part is seen, clipped changes with noise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("flwr")

from flwr.app import Context, RecordDict  # pyright: ignore[reportMissingImports]
from support.fleet_cases import plan_of, write_data
from support.flower_grid import GridHere

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.vectors import difference
from fleet_tools.baselines.flower.protected_run import LARGEST_WEIGHT, LEVELS, run_protected
from fleet_tools.baselines.flower.protection import Task, weights_after
from fleet_tools.baselines.flower.records import DataQuestion
from fleet_tools.baselines.flower.roster import Roster
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.errors import ConfigError

STREAMING = {"streaming": {}, "initialization": "common", "method": "git_rebasin"}


@pytest.fixture(scope="module", name="plan")
def _plan(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    data = write_data(tmp_path_factory.mktemp("fleet") / "data")
    return plan_of(data, **STREAMING, merge_every=None)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet_tools.baselines.flower.roster.POLL_S", 0.01)


def grid_of(count: int = 3, **config: object) -> GridHere:
    return GridHere(
        {100 + k: {"partition-id": k, "num-partitions": count, **config} for k in range(count)}
    )


def protect(plan: FleetPlan, output: Path, grid: GridHere, protection: str, **options: float):
    roster = Roster(grid, DataQuestion())
    roster.await_all(5)
    context = Context(1, 0, {}, RecordDict(), {})
    given = {"timeout_s": 60.0, "clip": 1.0, "noise": 1.0, "delta": 1e-5} | options
    return run_protected(grid, context, plan, roster, output, protection=protection, **given)


def own_weights(plan: FleetPlan) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights with which a round begins, and those of each robot after it."""
    base = plan.first_base()
    assert base is not None
    begun = difference(base, {name: each * 0 for name, each in base.items()})
    epochs = plan.config.epochs_per_round
    found = [
        weights_after(each, Task(assignment=each, round=1, epoch=0, epochs=epochs), begun)
        for each in plan.assignments
    ]
    return begun, np.stack(found)


def merged_vector(plan: FleetPlan, folder: Path) -> np.ndarray:
    weights, base = load_checkpoint(folder / "merged.safetensors").weights, plan.first_base()
    assert base is not None
    return difference(weights, {name: each * 0 for name, each in base.items()})


def masked_of(grid: GridHere) -> list[np.ndarray]:
    """Returns what the nodes sent as weights under SecAgg+, as integers."""
    from flwr.common import bytes_to_ndarray  # pyright: ignore[reportMissingImports]

    found = []
    for _, reply in grid.exchanged:
        record = reply.config_records.get("secaggplus_configs", {})
        for key, value in record.items():
            if "masked" in key:
                found.append(bytes_to_ndarray(value[-1]).astype(np.int64))
    return found


def test_a_secure_sum_is_the_plain_mean_but_for_rounding(plan: FleetPlan, tmp_path: Path) -> None:
    report = protect(plan, tmp_path / "fleet", grid_of(), "sums")
    _, own = own_weights(plan)
    step = 2 * LARGEST_WEIGHT / (LEVELS - 1)
    assert np.abs(merged_vector(plan, tmp_path / "fleet") - own.mean(axis=0)).max() <= 1.01 * step
    assert report == json.loads((tmp_path / "fleet/report.json").read_text())
    assert report["protection"] == "sums" and len(report["rounds"]) == plan.config.rounds


def test_no_single_robots_weights_are_seen_under_secure_sums(
    plan: FleetPlan, tmp_path: Path
) -> None:
    grids = [grid_of(), grid_of()]
    for number, grid in enumerate(grids):
        protect(plan, tmp_path / f"{number}", grid, "sums")
    one, two = map(masked_of, grids)
    begun, own = own_weights(plan)
    assert len(one) == len(two) == 3
    for first, second, true in zip(one, two, own, strict=True):
        assert np.mean(first == second) < 0.01  # the same weights under other masks
        assert np.abs(first.mean() / 2**31 - 1) < 0.15  # uniform modulo 2^32
        for secret in (true, true - begun):
            correlation = np.corrcoef(first.reshape(-1), secret.reshape(-1))[0, 1]
            assert abs(correlation) < 5 / np.sqrt(secret.size)
    # Whatever else a node sends, it holds no array, and no number of steps.
    for _, reply in grids[0].exchanged:
        assert all(len(record) == 0 for record in reply.array_records.values())
        assert all(set(record.values()) <= {1} for record in reply.metric_records.values())
    # The control: without the protection, the same check finds the weights.
    integers = np.round((own[0] + LARGEST_WEIGHT) / (2 * LARGEST_WEIGHT) * LEVELS)
    assert np.corrcoef(integers, own[0])[0, 1] > 0.99


def test_who_drops_out_at_the_end_leaves_the_sum_of_the_others(
    plan: FleetPlan, tmp_path: Path
) -> None:
    plan = plan_of(Path(plan.config.data[0]), **STREAMING, merge_every=None, robots=4)
    lost = 103

    def fails(node: int, message: object) -> bool:
        records = message.content.config_records  # pyright: ignore[reportAttributeAccessIssue]
        stage = records.get("secaggplus_configs", {}).get("stage", "")
        return node == lost and "collect" in str(stage)

    grid = grid_of(4)
    grid._fails = fails
    protect(plan, tmp_path / "fleet", grid, "sums")
    _, own = own_weights(plan)
    assert np.abs(merged_vector(plan, tmp_path / "fleet") - own[:3].mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize("clip", [0.05, 1e3])
def test_noise_is_about_the_mean_of_clipped_changes(
    plan: FleetPlan, tmp_path: Path, clip: float
) -> None:
    pytest.importorskip("dp_accounting")
    noise = 1e-2
    grid = grid_of()
    report = protect(plan, tmp_path / "fleet", grid, "noise", clip=clip, noise=noise)
    begun, own = own_weights(plan)
    changes = own - begun
    norms = np.linalg.norm(changes, axis=1, keepdims=True)
    mean = (changes * np.minimum(1, clip / norms)).mean(axis=0)
    found = merged_vector(plan, tmp_path / "fleet") - begun - mean
    assert np.std(found) == pytest.approx(noise * clip / 3, rel=0.1)
    assert abs(found.mean()) < 5 * np.std(found) / np.sqrt(found.size)
    assert report["epsilon"] > 100 and report["delta"] == 1e-5  # hardly any noise, no privacy


def test_epsilon_is_that_of_the_gaussian_mechanism(plan: FleetPlan, tmp_path: Path) -> None:
    accounting = pytest.importorskip("dp_accounting")
    report = protect(plan, tmp_path / "fleet", grid_of(), "noise", noise=2.0)
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.GaussianDpEvent(2.0), plan.config.rounds)
    assert report["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_node_answers_nothing_without_its_protection(plan: FleetPlan, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="failed"):
        protect(plan, tmp_path / "a", grid_of(protection="noise"), "sums")
    pytest.importorskip("dp_accounting")
    config: dict[str, Any]
    for config, options in ({"protection": "sums"}, {}), ({"clip": 0.5}, {"clip": 0.6}):
        with pytest.raises((TrainingError, ValueError, RuntimeError)):
            protect(plan, tmp_path / "b", grid_of(**config), "noise", **options)
    assert not (tmp_path / "a/merged.safetensors").exists()


def test_fleets_that_cannot_be_protected_are_refused(plan: FleetPlan, tmp_path: Path) -> None:
    data = Path(plan.config.data[0])
    with pytest.raises(ConfigError, match="streaming"):
        protect(plan_of(data), tmp_path / "a", grid_of(), "sums")
    with pytest.raises(ConfigError, match="robots: 2"):
        protect(plan, tmp_path / "a", grid_of(2), "sums")
    with pytest.raises(ConfigError, match="fewer than 3"):
        protect(plan_of(data, **STREAMING, robots=2), tmp_path / "a", grid_of(2), "sums")
