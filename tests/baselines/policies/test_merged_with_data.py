"""The program merges checkpoints by methods that ask for data, each model with its own dataset."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import plan_of, write_data

from fleet_merging.errors import MergeError
from fleet_merging.methods.registry import merge as merge_by
from fleet_tools.baselines import merge
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem, merged_checkpoint

BODIES = {
    "mlp": {"type": "mlp", "layers": 2, "width": 6},
    "gru": {"type": "gru", "layers": 1, "width": 6},
}


@pytest.fixture(scope="module", name="folders")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("own")
    return [write_data(folder / name, seed=seed) for seed, name in enumerate(("a", "b"))]


def blueprint(folders: list[Path], body: str) -> Blueprint:
    return plan_of(folders[0], policy={"body": BODIES[body]}).blueprint


def run(folder: Path, folders: list[Path], body: str, method: str, *more: str) -> tuple[int, Path]:
    """Merges two new policies, each with its own dataset."""
    of_both = blueprint(folders, body)
    paths = [folder / f"{seed}.safetensors" for seed in range(2)]
    for seed, path in enumerate(paths):
        save_checkpoint(path, Checkpoint(of_both, of_both.create(seed).state_dict()))
    output = folder / "merged.safetensors"
    datasets = [text for each in folders for text in ("--dataset", str(each))]
    given = [*map(str, paths), "--method", method, "--output", str(output), *datasets, *more]
    return merge.main([*given, "--points", "3", "--overwrite"]), output


def acting(checkpoint: Checkpoint, observations: Any) -> torch.Tensor:
    network = checkpoint.blueprint.create().eval()
    network.load_state_dict(checkpoint.weights)
    with torch.no_grad():
        return network(observations)[0]


@pytest.mark.parametrize(
    ("body", "method", "more"),
    [
        ("mlp", "fleet_merge", ("--option", "steps=2", "--option", "epochs=1")),
        ("mlp", "sinkhorn_data", ("--option", "steps=2")),
        ("gru", "least_squares", ()),
        ("mlp", "distillation", ("--option", "steps=5")),
        ("gru", "distillation", ("--option", "steps=5")),
    ],
)
def test_methods_that_ask_for_data_make_a_policy_of_one_size(
    body: str, method: str, more: tuple[str, ...], folders: list[Path], tmp_path: Path, capsys: Any
) -> None:
    code, output = run(tmp_path, folders, body, method, "--json", *more)
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["members"] == 1 and len(report["losses"]) == 2
    assert report["after"]["loss"] > 0 and report["traffic"]["calls"] >= 2
    assert load_checkpoint(output).blueprint == blueprint(folders, body)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("method", ["density_gate", "gated_refit", "concatenation", "partition"])
def test_ensembles_are_checkpoints_that_act_as_the_result_does(
    body: str, method: str, folders: list[Path], tmp_path: Path, capsys: Any
) -> None:
    """Two routes: the stored policy's own network, and the result as a module."""
    code, output = run(tmp_path, folders, body, method, "--json")
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["after"]["loss"] > 0
    stored, of_both = load_checkpoint(output), blueprint(folders, body)
    gate = stored.blueprint.config.gate
    assert (gate is None) == (method == "partition")
    if method == "partition":  # one network, twice as wide
        assert stored.blueprint.config.body.width == 12  # pyright: ignore
    from fleet_tools.baselines.federated.robot import local_data_holder
    from fleet_tools.baselines.training.demonstrations import Trajectories
    from fleet_tools.dataset.samples import Samples

    holders = []
    for folder in folders:
        samples = Samples([str(folder)], observations=list(of_both.observation))
        holders.append(local_data_holder(of_both, Trajectories(samples, of_both), 256))
    models = [of_both.create(seed).state_dict() for seed in range(2)]
    beside = "concatenation" if method == "partition" else method
    result = merge_by(beside, checkpoint_problem(of_both, models, holders))
    observations = of_both.example(3)
    with torch.no_grad():
        expected = result.model(observations)
    acted = acting(stored, observations)
    torch.testing.assert_close(acted, expected, rtol=1e-3, atol=1e-4)
    again = acting(merged_checkpoint(of_both, result), observations)
    torch.testing.assert_close(again, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("width", [4, 9])
def test_policies_are_compressed_to_one_of_another_width(
    body: str, width: int, folders: list[Path], tmp_path: Path, capsys: Any
) -> None:
    """The program's file holds a common policy of that width, as good as its report says."""
    code, output = run(tmp_path, folders, body, "compress", "--json", "--option", f"width={width}")
    report, stored = json.loads(capsys.readouterr().out), load_checkpoint(output)
    of_both = blueprint(folders, body)
    assert code == 0 and report["members"] == 1 and report["traffic"]["calls"] == 6
    assert stored.blueprint == of_both.with_width(width)
    assert report["parameters"] == sum(each.numel() for each in stored.weights.values())
    assert report["after"]["loss"] < min(report["losses"])
    code, output = run(tmp_path, folders, body, "compress", "--option", "width=13")
    assert code == 2 and "from 1 to 12" in capsys.readouterr().err
    transformer = {"type": "transformer", "width": 6, "layers": 1, "heads": 2, "feedforward": 8}
    other = plan_of(folders[0], policy={"body": transformer}).blueprint
    problem = checkpoint_problem(other, [other.create().state_dict()] * 2)
    assert problem.at_width is not None and other.with_width(4) is None
    with pytest.raises(MergeError, match="the body 'transformer'"):
        problem.at_width(4)


def test_what_does_not_fit_is_refused(folders: list[Path], tmp_path: Path, capsys: Any) -> None:
    code, output = run(tmp_path, folders[:1], "mlp", "fleet_merge")
    assert code == 2 and "--dataset is given 1 times" in capsys.readouterr().err
    paths = [str(tmp_path / f"{seed}.safetensors") for seed in range(2)]
    given = [*paths, "--method", "fleet_merge", "--output", str(output)]
    assert merge.main(given) == 2
    assert "--dataset" in capsys.readouterr().err
    code, output = run(tmp_path, folders, "mlp", "git_rebasin", "--model", "a:b")
    assert code == 2 and "--dataset for each model's data" in capsys.readouterr().err
    assert not output.exists()
