"""Policies made of robots' networks: a gate, a concatenation, and one that imitates them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import RecordingTransport, config_of, local, plan_of
from support.small_datasets import Drawn, hammer_header, write

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import COMBINED, DISTILLED, MERGED, REPORT, FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.demonstrations import Batch, Trajectories
from fleet_tools.baselines.training.distillation import DrawnStates
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError
from fleet_tools.sim.splits import TRAINING

MLP = {"body": {"type": "mlp", "layers": 2, "width": 6}}


def completed(plan: FleetPlan, folder: Path) -> dict[str, Any]:
    """Runs a fleet, and returns its report."""
    with FleetWriter(folder, plan) as writer:
        return complete(writer, local(plan))


def states_of(plan: FleetPlan, robot: int) -> Batch:
    """Returns all steps of a robot's data, one row each."""
    assignment = plan.assignments[robot]
    samples = Samples(assignment.data).subset(assignment.episodes)
    trajectories = Trajectories(samples, plan.blueprint)
    (items,) = trajectories.order(10**6, None)
    return trajectories.batch(items)


@torch.no_grad()
def outputs(policy: Checkpoint, batch: Batch) -> np.ndarray:
    """Returns a policy's actions, one row for each step."""
    network = policy.blueprint.create()
    network.load_state_dict(policy.weights)
    return network(batch.observations)[0].flatten(0, 1).double().numpy()


def test_the_gate_has_all_networks_and_knows_what_each_learned_from(
    data: Path, tmp_path: Path
) -> None:
    plan = plan_of(data, policy=MLP, last_method="density_gated_ensemble")
    report = completed(plan, tmp_path / "fleet")
    assert json.loads((tmp_path / "fleet" / REPORT).read_text()) == report
    assert report["combined"]["traffic"]["calls"] == 3
    combined = load_checkpoint(tmp_path / "fleet" / COMBINED)
    gate = combined.blueprint.config.gate
    assert gate is not None and gate.members == 3
    for robot in range(3):
        own = load_checkpoint(tmp_path / "fleet" / "robots" / f"{robot}.safetensors").weights
        for name, tensor in own.items():
            assert torch.equal(combined.weights[f"members.{robot}.{name}"], tensor)
    # Independently: mean and covariance of a robot's scaled states.
    with torch.no_grad():
        network = plan.blueprint.create()
        observed = states_of(plan, 1).observations
        state = network.scaled_state(observed).flatten(0, 1).numpy()  # pyright: ignore
    np.testing.assert_allclose(combined.weights["gate.means"][1], state.mean(0), atol=1e-5)
    factor = combined.weights["gate.factors"][1].double().numpy()
    covariance = np.cov(state.T, bias=True) + 0.1 * np.eye(state.shape[1])
    np.testing.assert_allclose(np.linalg.inv(factor @ factor.T), covariance, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["density_gated_ensemble", "gated_refit", "concatenation"])
def test_a_finished_fleet_is_resumed(data: Path, tmp_path: Path, method: str) -> None:
    """The merged policy of its last round was not evaluated, though rollouts were asked for."""
    plan = plan_of(data, policy=MLP, last_method=method, rollouts=1, rollout_every=2)
    asked: list[Checkpoint] = []
    transports, reports = [RecordingTransport(local(plan)) for _ in range(2)], []

    def measure(checkpoint: Checkpoint, /, tasks: Any = None) -> None:
        asked.append(checkpoint)

    for transport in transports:
        with FleetWriter(tmp_path / "fleet", plan) as writer:
            reports.append(complete(writer, transport, measure_success=measure))
    assert reports[0] == reports[1]
    messages = 2 if method == "gated_refit" else 1
    assert len(transports[1].exchanges) == 3 * messages  # the combination's; no round is run again
    # The merged policy is not evaluated.
    assert [each.blueprint == plan.blueprint for each in asked] == [False, False]


FLOW = {**MLP, "chunk": 2, "head": {"type": "flow", "layers": 1, "width": 8, "steps": 3}}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("concatenation", {}),
        ("gated_refit", {}),
        ("partition", {}),
        ("structured_compression", {"width": 9}),
        ("distillation", {"teacher": "gated_refit", "steps": 20, "refit": 1e-3}),
    ],
)
def test_robots_with_chunks_and_heads_that_denoise_are_combined(
    data: Path, tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    """With noise in their moments, no honest robot is left out; what is made acts."""
    last = {"last_method": method, "last_options": options, "moment_noise": 1e-4}
    plan = plan_of(data, policy=FLOW, merge_every=None, **last)
    report = completed(plan, tmp_path / "fleet")
    assert report["combined"]["left_out"] == [] and np.isfinite(report["combined"]["loss"])
    policy = NetworkPolicy(load_checkpoint(tmp_path / "fleet" / COMBINED))
    observed = states_of(plan, 0).observations
    actions = [
        policy.act({key: each[k, 0].numpy() for key, each in observed.items()}) for k in (0, 1)
    ]
    assert np.isfinite(actions).all() and np.abs(actions).max() <= 1


def test_drawn_states_teach_chunks_and_heads_that_denoise(data: Path, tmp_path: Path) -> None:
    learning = {"inputs": "moments", "states": 300, "epochs": 2}
    last = {"last_method": "gated_refit", "distillation": learning}
    plan = plan_of(data, policy=FLOW, merge_every=None, **last)
    report = completed(plan, tmp_path / "fleet")
    assert np.isfinite(report["distilled"]["loss"])
    gate = load_checkpoint(tmp_path / "fleet" / COMBINED)
    one, same, other = (
        DrawnStates.of(gate, (5, 5, 5), seed).batch(np.arange(15)) for seed in (3, 3, 4)
    )
    assert one.actions.shape == (15, 1, 2, 6) and one.imitated.all()
    assert torch.equal(one.actions, same.actions) and not torch.equal(one.actions, other.actions)


def test_a_student_learns_from_drawn_states_what_the_gate_does(data: Path, tmp_path: Path) -> None:
    learning = {"inputs": "moments", "states": 1500, "epochs": 8, "learning_rate": 0.01}
    plan = plan_of(
        data,
        policy=MLP,
        merge_every=None,
        training={"epochs": 30, "batch_size": 8, "seed": 5, "learning_rate": 0.01},
        last_method="density_gated_ensemble",
        distillation=learning,
    )
    report = completed(plan, tmp_path / "fleet")
    assert json.loads((tmp_path / "fleet" / REPORT).read_text()) == report
    assert report["combined"]["rollouts"] is None and np.isfinite(report["distilled"]["loss"])
    gate, merged, student = (
        load_checkpoint(tmp_path / "fleet" / name) for name in (COMBINED, MERGED, DISTILLED)
    )
    assert student.blueprint == merged.blueprint
    batch = states_of(plan, 0)  # the student has seen no step of any robot
    before, after = (
        np.square(outputs(each, batch) - outputs(gate, batch)).mean() for each in (merged, student)
    )
    assert after < 0.5 * before


def test_drawn_states_have_the_moments_of_the_gate(data: Path, tmp_path: Path) -> None:
    plan = plan_of(data, policy=MLP, last_method="density_gated_ensemble")
    completed(plan, tmp_path / "fleet")
    gate = load_checkpoint(tmp_path / "fleet" / COMBINED)
    states = DrawnStates.of(gate, (0, 60_000, 0), seed=3)
    order = states.order(7000, np.random.default_rng(0))
    assert sorted(np.concatenate(order)) == list(range(60_000)) and len(order[0]) == 7000
    batch = states.batch(np.arange(60_000))
    network = plan.blueprint.create()
    scaled = network.scaled_state(batch.observations)[:, 0].double()  # pyright: ignore
    factor = gate.weights["gate.factors"][1].double().numpy()
    covariance = np.linalg.inv(factor @ factor.T)
    scale = np.sqrt(np.diagonal(covariance))
    errors = (scaled.numpy().mean(0) - gate.weights["gate.means"][1].numpy()) / scale
    np.testing.assert_allclose(errors, 0, atol=0.03)
    np.testing.assert_allclose(
        np.cov(scaled.numpy().T) / np.outer(scale, scale),
        covariance / np.outer(scale, scale),
        atol=0.03,
    )
    acted = outputs(gate, batch).clip(-1, 1)
    np.testing.assert_allclose(batch.actions.flatten(0, 1).flatten(1), acted, atol=1e-5)


def test_a_student_learns_in_scenes_that_the_driver_simulates_once(tmp_path: Path) -> None:
    write(tmp_path / "data", Drawn([5, 4, 6, 3], [True] * 4, 0), hammer_header())
    learning = {"inputs": "scenes", "scenes": 3, "epochs": 1}
    changes: dict[str, Any] = {"last_method": "density_gated_ensemble", "distillation": learning}
    plan = plan_of(tmp_path / "data", robots=1, policy=MLP, **changes)
    folder = tmp_path / "fleet"
    first = completed(plan, folder)
    datasets = [Dataset(folder / "scenes" / name / "hammer") for name in ("combined", "merged")]
    assert [len(dataset.manifest()) for dataset in datasets] == [2, 1]
    seeds = {record.seed for dataset in datasets for record in dataset.manifest()}
    assert len(seeds) == 3 and all(seed in TRAINING for seed in seeds)
    for dataset, policy in zip(datasets, (COMBINED, MERGED), strict=True):
        assert dataset.header.policy.startswith(policy) and dataset.header.keep_failures
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.hdf5")}
    (folder / REPORT).unlink()
    assert completed(plan, folder) == first and len(stamps) == 3
    assert stamps == {path: path.stat().st_mtime_ns for path in folder.rglob("*.hdf5")}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {
                "policy": {**MLP, "clouds": {"widths": [4]}},
                "last_method": "gated_refit",
                "distillation": {"inputs": "moments"},
            },
            "encoders",
        ),
        ({"policy": MLP, "distillation": {}}, "the result of a `last_method`"),
        (
            {"last_method": "density_gated_ensemble", "distillation": {"inputs": "moments"}},
            "memory",
        ),
        (
            {
                "policy": MLP,
                "last_method": "concatenation",
                "distillation": {"inputs": "moments"},
            },
            "the Gaussians of a gate",
        ),
    ],
)
def test_what_cannot_be_combined_or_imitated_is_refused(
    data: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(data, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"method": "structured_compression", "options": {"width": 4}},
            "must keep the robots' width",
        ),
        (
            {"last_method": "structured_compression", "last_options": {"width": 25}},
            "exceeds the 18 units",
        ),
        ({"last_method": "structured_compression", "last_options": {"width": 0}}, "at least 1"),
        (
            {
                "last_method": "structured_compression",
                "last_options": {"width": 4},
                "policy": {"body": {"type": "transformer", "width": 8, "heads": 2}},
            },
            "this body is transformer",
        ),
    ],
)
def test_widths_that_cannot_be_made_are_refused_before_robots_train(
    data: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(data, **({"policy": MLP} | changes))
