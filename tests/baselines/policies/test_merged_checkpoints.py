"""Checkpoints as a merge problem, and gated policies that a merge made."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.policy_cases import ACTION, BLUEPRINTS, made, observations, step

from fleet_merging.errors import MergeError
from fleet_merging.symmetry.check import check
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines import merge
from fleet_tools.baselines.model_files import (
    IncompatiblePoliciesError,
    common_blueprint,
    read_model,
    write_model,
)
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import GateConfig, PolicyConfig
from fleet_tools.baselines.policies.layout import Scaling
from fleet_tools.baselines.policies.network import GatedNetwork
from fleet_tools.baselines.policies.part_configs import MLPConfig
from fleet_tools.baselines.policies.policy import load_checkpoint_policy

KINDS = pytest.mark.parametrize(
    "name",
    ["mlp on state", "elman on clouds", pytest.param("gru on all", marks=pytest.mark.slow)],
)


def permuted(name: str, seed: int) -> Checkpoint:
    """Returns the same policy, with its units in another order."""
    symmetry, state = BLUEPRINTS[name].symmetry(), made(name).state_dict()
    element = symmetry.group(state).random(np.random.default_rng(seed))
    return Checkpoint(BLUEPRINTS[name], symmetry.apply(element, state))


def stored(folder: Path, *checkpoints: Checkpoint) -> list[Path]:
    paths = [folder / f"robot_{index}.safetensors" for index in range(len(checkpoints))]
    for path, checkpoint in zip(paths, checkpoints, strict=True):
        save_checkpoint(path, checkpoint)
    return paths


def run(paths: Sequence[Path], *more: str, method: str = "git_rebasin") -> tuple[int, Path]:
    """Merges checkpoints, and returns the exit code and the path of the output."""
    output = paths[0].with_name("merged.safetensors")
    given = [*map(str, paths), "--method", method, "--output", str(output)]
    return merge.main([*given, *more]), output


@KINDS
def test_copies_with_other_orders_of_units_are_merged_into_the_original(name, tmp_path):
    paths = stored(tmp_path, *(permuted(name, seed) for seed in (1, 2, 3)))
    code, output = run(paths, "--quiet")
    assert code == 0
    policy, original = load_checkpoint_policy(output), made(name)
    trajectories = observations(BLUEPRINTS[name], 1, 4)
    policy.reset()
    with torch.inference_mode():
        expected, _ = original(trajectories)
    actions = [policy.act(step(trajectories, 0, t)) for t in range(4)]
    np.testing.assert_allclose(actions, expected[0].clamp(-1, 1), atol=1e-5)
    assert load_checkpoint(output).blueprint == BLUEPRINTS[name]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * name.endswith(" on images"))
        for name in sorted(BLUEPRINTS.keys() - {"linear on state"})  # "gru on all" sees images
    ],
)
def test_the_example_of_a_blueprint_reaches_every_weight(name):
    """Merging checks each table by it; warnings are errors here."""
    check(
        BLUEPRINTS[name].symmetry(),
        made(name),
        (BLUEPRINTS[name].example(),),
        output=lambda outputs: outputs[0],
        draws=1,
    )


def test_a_merge_of_checkpoints_says_that_their_table_was_checked(tmp_path, capsys):
    paths = stored(tmp_path, *(permuted("mlp on state", seed) for seed in (1, 2)))
    code, output = run(paths, "--json")
    out, err = capsys.readouterr()
    assert code == 0 and err == ""
    assert json.loads(out)["check"]["unused"] == []
    assert output.exists()


def test_checkpoints_are_not_merged_by_a_false_table(tmp_path, capsys, monkeypatch):
    paths = stored(tmp_path, *(permuted("mlp on state", seed) for seed in (1, 2)))
    table = BLUEPRINTS["mlp on state"].symmetry().table()
    bias = next(name for name in table if name.endswith("bias"))
    false = Symmetry.of(table | {bias: "_"})
    monkeypatch.setattr(Blueprint, "symmetry", lambda self: false)
    code, output = run(paths, method="naive_average")
    assert code == 2 and "changes them by" in capsys.readouterr().err
    assert not output.exists()


def test_a_merged_checkpoint_has_notes_on_its_origin_and_reproducible_bytes(tmp_path):
    paths = stored(tmp_path, *(permuted("mlp on state", seed) for seed in (1, 2)))
    code, output = run(paths, "--quiet", "--averaging-weights", "3", "1", method="naive_average")
    first = output.read_bytes()
    notes = load_checkpoint(output).notes
    assert code == 0
    assert notes["method"] == "naive_average"
    assert notes["models"] == ["robot_0.safetensors", "robot_1.safetensors"]
    assert notes["weights"] == [0.75, 0.25]
    weights = ("--averaging-weights", "3", "1")
    again = run(paths, "--quiet", "--overwrite", *weights, method="naive_average")
    assert again[0] == 0
    assert output.read_bytes() == first
    save_checkpoint(output, load_checkpoint(output))
    assert output.read_bytes() == first


def test_a_merged_checkpoint_can_be_merged_again(tmp_path, capsys):
    paths = stored(tmp_path, *(permuted("mlp on state", seed) for seed in (1, 2)))
    _, output = run(paths, "--quiet")
    again = output.rename(tmp_path / "once.safetensors")
    assert run([paths[0], again], "--json")[0] == 0
    assert json.loads(capsys.readouterr().out)["after"]["distance"] < 1e-3


BASE = BLUEPRINTS["mlp on state"]


def changed(**parts: Any) -> Blueprint:
    """Returns the blueprint with some parts replaced."""
    given: dict[str, Any] = {
        "config": BASE.config,
        "observation": BASE.observation,
        "action": BASE.action,
    }
    return Blueprint.of(**{**given, "scaling": BASE.scaling, **parts})


OTHERS = {
    "the config's body.width is 24, not 25": changed(
        config=PolicyConfig(body=MLPConfig(layers=2, width=25))
    ),
    "the unit of 'joint_position' is 'rad', not 'deg'": changed(
        observation={
            **BASE.observation,
            "joint_position": BASE.observation["joint_position"].model_copy(update={"unit": "deg"}),
        }
    ),
    "the scale of actions is": changed(action=ACTION.model_copy(update={"scale": (0.1,) * 6})),
    "the environment's obs_mode is 'state', not 'multitask_state'": changed(
        env_kwargs={"obs_mode": "multitask_state"}
    ),
}


@pytest.mark.parametrize("difference", OTHERS)
def test_different_policies_are_refused_with_their_difference(difference, tmp_path, capsys):
    other = OTHERS[difference]
    paths = stored(tmp_path, *(Checkpoint(b, b.create().state_dict()) for b in (BASE, other)))
    code, output = run(paths)
    assert code == 2
    message = capsys.readouterr().err
    assert difference in message and "robot_1.safetensors" in message
    assert not output.exists()


def test_policies_have_a_common_blueprint_if_all_are_the_same():
    assert common_blueprint({"a": BASE, "b": BASE.model_copy()}) == BASE
    with pytest.raises(IncompatiblePoliciesError, match="a and c have different blueprints"):
        common_blueprint({"a": BASE, "b": BASE, "c": OTHERS["the scale of actions is"]})


def scaling_of(blueprint: Blueprint, seed: int) -> Scaling:
    """Returns statistics of a robot, to which a third of the numbers seems constant."""
    rng, sizes = np.random.default_rng(seed), blueprint.scaling.mean
    std = {n: rng.uniform(0.05, 2, len(r)) * (rng.random(len(r)) > 0.3) for n, r in sizes.items()}
    mean = {n: tuple(rng.normal(size=len(row)).tolist()) for n, row in sizes.items()}
    return Scaling(mean=mean, std={name: tuple(row.tolist()) for name, row in std.items()})


def test_policies_that_scale_by_other_statistics_are_refused_with_a_remedy(tmp_path, capsys):
    weights = made("mlp on state").state_dict()
    policies = [
        Checkpoint(BASE.model_copy(update={"scaling": scaling_of(BASE, seed)}), weights)
        for seed in (1, 2)
    ]
    assert run(stored(tmp_path, *policies), method="naive_average")[0] == 2
    told = capsys.readouterr().err
    assert "other statistics scale the inputs" in told and "--like" in told


def test_checkpoints_and_other_models_are_not_mixed(tmp_path, capsys):
    (path,) = stored(tmp_path, permuted("mlp on state", 1))
    write_model(tmp_path / "other.safetensors", read_model(path))
    assert run([path, tmp_path / "other.safetensors"])[0] == 2
    assert "robot_0.safetensors are checkpoints, and other" in capsys.readouterr().err
    another = Path(shutil.copy(tmp_path / "other.safetensors", tmp_path / "another.safetensors"))
    assert run([tmp_path / "other.safetensors", another])[0] == 2
    assert "--problem MODULE:FUNCTION" in capsys.readouterr().err


STATEFUL = ["mlp on state", "elman on state", "lstm on state", "transformer on state"]


def gated(name, members=3, seed=0):
    blueprint = BLUEPRINTS[name]
    config = blueprint.config.model_copy(update={"gate": GateConfig(members=members)})
    blueprint = blueprint.model_copy(update={"config": config})
    network = blueprint.create(seed).eval()
    assert isinstance(network, GatedNetwork)
    return blueprint, network


@pytest.mark.parametrize("name", [name for name in STATEFUL if name in BLUEPRINTS])
def test_equal_members_act_as_one_and_steps_follow_one_another(name):
    blueprint, network = gated(name)
    member = BLUEPRINTS[name].create(5).eval()
    for each in network.members:
        each.load_state_dict(member.state_dict())
    seen = observations(blueprint, 2, 4)
    with torch.no_grad():
        expected, _ = member(seen)
        actual, _ = network(seen)
        torch.testing.assert_close(actual, expected)
        hidden, parts = None, []
        for t in range(4):
            action, hidden = network(
                {key: value[:, t : t + 1] for key, value in seen.items()}, hidden
            )
            parts.append(action)
    torch.testing.assert_close(torch.cat(parts, 1), expected)


def test_a_gated_policy_is_stored_and_read_and_not_merged(tmp_path):
    blueprint, network = gated("mlp on state")
    path = tmp_path / "gated.safetensors"
    save_checkpoint(path, Checkpoint(blueprint, network.state_dict()))
    read = load_checkpoint(path)
    assert read.blueprint == blueprint
    assert all(torch.equal(read.weights[key], value) for key, value in network.state_dict().items())
    with pytest.raises(MergeError, match="Merge its members"):
        blueprint.symmetry()


def test_only_a_member_reads_for_a_gate():
    with pytest.raises(ValueError, match="2 members have the numbers 0 to 1"):
        GateConfig(members=2, reader=2)


@pytest.mark.parametrize("name", ["elman on state", "mlp on clouds"])
def test_without_densities_a_policy_is_the_mean_of_its_members(name, tmp_path):
    blueprint = BLUEPRINTS[name]
    gate = GateConfig(members=3, sharpness=0)
    config = blueprint.config.model_copy(update={"gate": gate})
    blueprint = blueprint.model_copy(update={"config": config})
    network = blueprint.create(0).eval()
    assert isinstance(network, GatedNetwork)
    seen = observations(blueprint, 2, 4)
    with torch.no_grad():
        actions = torch.stack([member(seen)[0] for member in network.members]).mean(0)
        torch.testing.assert_close(network(seen)[0], actions)
    assert all(key.startswith("members.") for key in network.state_dict())
    path = tmp_path / "mean.safetensors"
    save_checkpoint(path, Checkpoint(blueprint, network.state_dict()))
    assert load_checkpoint(path).blueprint == blueprint
