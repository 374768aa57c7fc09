"""Merges of policies by methods that ask for data, with and without encoders."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import plan_of, write_data
from support.policy_cases import ACTION, BLUEPRINTS, BODIES, CLOUD, STATE, made, observations
from support.policy_merges import error_of, problem_of

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.methods.distillation import with_common_encoders
from fleet_merging.methods.registry import merge as merge_by
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.query import MixtureQuery
from fleet_merging.queries.traffic import DataHolderError, TrafficMeter
from fleet_merging.symmetry.table import State
from fleet_tools.baselines import merge
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem, merged_checkpoint
from fleet_tools.baselines.policies.network import FEATURES
from fleet_tools.baselines.policies.part_configs import OwnClassConfig, PointNetConfig
from fleet_tools.utils.imports import TRUSTED_MODULES

_MLP, _GRU = {"type": "mlp", "layers": 2, "width": 6}, {"type": "gru", "layers": 1, "width": 6}
_NARROW = {"layers": 1, "width": 6, "steps": 3}
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"body": _MLP},
    "gru": {"body": _GRU},
    "gru with chunks": {"body": _GRU, "chunk": 3},
    "mlp with flow": {"body": _MLP, "chunk": 2, "head": {"type": "flow", **_NARROW}},
    "gru with diffusion": {"body": _GRU, "head": {"type": "diffusion", **_NARROW}},
}


@pytest.fixture(scope="module", name="folders")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("own")
    return [write_data(folder / name, seed=seed) for seed, name in enumerate(("a", "b"))]


def blueprint(folders: list[Path], name: str) -> Blueprint:
    return plan_of(folders[0], policy=SMALL[name]).blueprint


def run(folder: Path, folders: list[Path], name: str, method: str, *more: str) -> tuple[int, Path]:
    """Merges two new policies, each with its own dataset."""
    of_both = blueprint(folders, name)
    paths = [folder / f"{seed}.safetensors" for seed in range(2)]
    for seed, path in enumerate(paths):
        save_checkpoint(path, Checkpoint(of_both, of_both.create(seed).state_dict()))
    output = folder / "merged.safetensors"
    datasets = [text for each in folders for text in ("--dataset", str(each))]
    given = [*map(str, paths), "--method", method, "--output", str(output), *datasets, *more]
    return merge.main([*given, "--points", "3", "--overwrite"]), output


def acting(checkpoint: Checkpoint, *arguments: Any) -> torch.Tensor:
    network = checkpoint.blueprint.create().eval()
    network.load_state_dict(checkpoint.weights)
    with torch.no_grad():
        return network(*arguments)[0]


@pytest.mark.parametrize(
    ("name", "method", "more"),
    [
        ("mlp", "fleet_merge", ("steps=2", "epochs=1")),
        ("mlp", "sinkhorn_data", ("steps=2",)),
        ("gru", "least_squares", ()),
        ("mlp", "distillation", ("steps=5",)),
        ("gru", "distillation", ("steps=5",)),
        ("gru with chunks", "head_refit", ()),
        ("mlp with flow", "head_refit", ()),
        ("mlp with flow", "distillation", ("steps=5", "teacher=gated_refit", "refit=0.001")),
        ("gru with diffusion", "distillation", ("steps=5", "teacher=concatenation")),
        ("gru with diffusion", "regmean", ()),
    ],
)
def test_methods_that_ask_for_data_make_a_policy_of_one_size(
    name: str, method: str, more: tuple[str, ...], folders: list[Path], tmp_path: Path, capsys: Any
) -> None:
    options = [text for each in more for text in ("--option", each)]
    code, output = run(tmp_path, folders, name, method, "--json", *options)
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["members"] == 1 and len(report["losses"]) == 2
    assert report["after"]["loss"] > 0 and report["traffic"]["calls"] >= 2
    assert load_checkpoint(output).blueprint == blueprint(folders, name)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "method", ["density_gated_ensemble", "gated_refit", "concatenation", "partition"]
)
def test_ensembles_are_checkpoints_that_act_as_the_result_does(
    name: str, method: str, folders: list[Path], tmp_path: Path, capsys: Any
) -> None:
    """Two routes: the stored policy's own network, and the result as a module."""
    code, output = run(tmp_path, folders, name, method, "--json")
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["after"]["loss"] > 0
    stored, of_both = load_checkpoint(output), blueprint(folders, name)
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
    arguments = of_both.arguments(3)
    with torch.no_grad():
        expected = result.model(*arguments)
    acted = acting(stored, *arguments)
    torch.testing.assert_close(acted, expected, rtol=1e-3, atol=1e-4)
    again = acting(merged_checkpoint(of_both, result), *arguments)
    torch.testing.assert_close(again, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("width", [4, 9])
def test_policies_are_compressed_to_one_of_another_width(
    name: str, width: int, folders: list[Path], tmp_path: Path, capsys: Any
) -> None:
    """The program's file holds a common policy of that width, as good as its report says."""
    code, output = run(
        tmp_path, folders, name, "structured_compression", "--json", "--option", f"width={width}"
    )
    report, stored = json.loads(capsys.readouterr().out), load_checkpoint(output)
    of_both = blueprint(folders, name)
    assert code == 0 and report["members"] == 1 and report["traffic"]["calls"] == 6
    assert stored.blueprint == of_both.with_width(width)
    assert report["parameters"] == sum(each.numel() for each in stored.weights.values())
    assert report["after"]["loss"] < min(report["losses"])
    code, output = run(tmp_path, folders, name, "structured_compression", "--option", "width=13")
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
    assert code == 2 and "each model's data with --dataset" in capsys.readouterr().err
    assert not output.exists()


EPISODES, STEPS = 12, 9
SEEING = ["mlp on clouds", "elman on clouds", "gru on clouds", "transformer on clouds"]


def seen(name: str, robot: int) -> dict[str, torch.Tensor]:
    return observations(BLUEPRINTS[name], EPISODES, STEPS, seed=robot)


def holder(name: str, robot: int) -> LocalDataHolder:
    """Returns a robot's holder, whose episodes are taught by a network of its own."""
    observed = seen(name, robot)
    episodes = [{key: rows[k] for key, rows in observed.items()} for k in range(EPISODES)]
    data: Any = SimpleNamespace(episodes=lambda: iter(episodes), with_memory=True)
    with torch.no_grad():
        labels = made(name, robot)(observed)[0].flatten(0, 1)
    local = local_data_holder(BLUEPRINTS[name], data, 8)
    return replace(local, unlabelled=None, batches=lambda: [LabelledBatch((observed,), labels)])


def encoders_problem(name: str, robots: int = 2) -> MergeProblem:
    models = [made(name, robot).state_dict() for robot in range(robots)]
    return checkpoint_problem(
        BLUEPRINTS[name], models, [holder(name, robot) for robot in range(robots)]
    )


def acted_by(name: str, state: State, observed: dict[str, torch.Tensor]) -> torch.Tensor:
    network = BLUEPRINTS[name].create().eval()
    network.load_state_dict(state)
    with torch.no_grad():
        return network(observed)[0]


@pytest.mark.parametrize("name", [*SEEING, "mlp on images", "gru on all", "film of the task"])
def test_a_network_acts_on_its_features_as_on_what_it_sees(name):
    network, observed = made(name), observations(BLUEPRINTS[name], 2, 5)
    with torch.no_grad():
        features = network.features(observed)
        for given, expected in zip(network({FEATURES: features}), network(observed), strict=True):
            torch.testing.assert_close(given, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", SEEING)
def test_behind_its_own_encoders_a_model_is_what_it_was(name):
    problem = encoders_problem(name, 1)
    (same,) = with_common_encoders(problem, problem.models[0], TrafficMeter())
    for key, tensor in problem.models[0].items():
        torch.testing.assert_close(same[key], tensor, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SEEING)
def test_models_act_as_before_behind_encoders_with_features_in_other_orders_and_units(name):
    """Features that are permuted and scaled hold the same; moments alone tell a model how."""
    problem, observed = encoders_problem(name, 1), seen(name, 0)
    own, last = problem.models[0], 1  # of two layers
    count = len(own[f"clouds.layers.{last}.bias"])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    units = torch.linspace(0.5, 2, count)
    other = dict(own)
    for part, scale in (("weight", units[:, None]), ("bias", units)):
        other[f"clouds.layers.{last}.{part}"] = scale * own[f"clouds.layers.{last}.{part}"][order]
    before = acted_by(name, own, observed)
    spoilt = float((acted_by(name, other, observed) - before).square().mean())
    (fitted,) = with_common_encoders(problem, other, TrafficMeter())
    after = float((acted_by(name, fitted, observed) - before).square().mean())
    assert torch.equal(fitted[f"clouds.layers.{last}.bias"], other[f"clouds.layers.{last}.bias"])
    assert after < 0.01 * spoilt


@pytest.mark.parametrize("name", ["mlp on clouds", "elman on clouds"])
def test_a_student_that_sees_comes_nearer_to_its_teacher_and_keeps_the_encoders(name):
    problem = encoders_problem(name)
    options: Any = {
        "teacher": "concatenation",
        "start": "structured_compression",
        "mixtures": 4,
        "rank": 12,
    }
    result = merge_by("distillation", problem, **options, states=2000, steps=300)
    start = merge_by("distillation", problem, **options, states=2000, steps=0)
    assert result.traffic == start.traffic
    models = with_common_encoders(problem, start.state, TrafficMeter())
    taught = merge_by("concatenation", replace(problem, models=models))
    gaps = []
    for state in (start.state, result.state):
        errors = [
            acted_by(name, state, observed) - _mean_of(name, taught.members, observed)
            for observed in (seen(name, robot) for robot in range(2))
        ]
        gaps.append(float(torch.cat(errors).square().mean()))
    assert gaps[1] < 0.9 * gaps[0]
    for key, tensor in start.state.items():
        assert torch.equal(result.state[key], tensor) == key.startswith("clouds.")
    assert merged_checkpoint(BLUEPRINTS[name], result).blueprint == BLUEPRINTS[name]


def _mean_of(name: str, members: Any, observed: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack([acted_by(name, each, observed) for each in members]).mean(0)


def test_who_sees_is_asked_about_a_model_and_who_does_not_is_not():
    sees, model = holder("mlp on clouds", 0), made("mlp on clouds").state_dict()
    mixture: Any = sees.answer(MixtureQuery(3, 1, 5, model))
    width = made("mlp on clouds").features(seen("mlp on clouds", 0)).shape[-1]
    assert mixture.axes.shape == (width, 5) and mixture.size == width
    whole: Any = sees.answer(MixtureQuery(3, 1, 10**6, model))
    assert whole.axes is None and whole.size == width
    for asked in (MixtureQuery(3, 1), MixtureQuery(3, 1, 5, made("gru on clouds").state_dict())):
        with pytest.raises(MessageError, match=r"needs a model if|another architecture"):
            sees.answer(asked)
    blind, own = holder("mlp on state", 0), made("mlp on state").state_dict()
    with pytest.raises(MessageError, match="needs a model if"):
        blind.answer(MixtureQuery(3, 1, 5, own))


def test_features_of_other_encoders_are_refused_by_their_holder():
    class Lying:
        def answer(self, query):
            honest = holder("mlp on clouds", 0).answer(query)
            if isinstance(query, MixtureQuery) and isinstance(honest, StateMixture):
                return replace(honest, axes=0.1 * torch.ones(5, query.rank))
            return honest

    liar: Any = Lying()
    options: Any = {"teacher": "concatenation", "mixtures": 2, "rank": 4}
    problem = replace(
        encoders_problem("mlp on clouds"), data_holders=[liar, holder("mlp on clouds", 1)]
    )
    with pytest.raises(DataHolderError, match="states of 5 numbers") as error:
        merge_by("distillation", problem, **options)
    assert error.value.holder is liar


def test_ensembles_and_own_bodies_that_see_are_refused_with_a_reason(monkeypatch):
    blueprint = BLUEPRINTS["mlp on clouds"]
    several = merged_checkpoint(blueprint, merge_by("ensemble", encoders_problem("mlp on clouds")))
    with pytest.raises(MergeError, match="gate"):
        checkpoint_problem(several.blueprint, [several.weights] * 2)
    monkeypatch.setenv(TRUSTED_MODULES, "support.own_parts")
    encoder = OwnClassConfig(name="support.own_parts:MeanOfPoints", arguments={"width": 5})
    body = OwnClassConfig(name="support.own_parts:GatedBody")
    for part, known in ((BODIES["mlp"], True), (body, False)):
        own = Blueprint.of(PolicyConfig(body=part, clouds=encoder), CLOUD, ACTION)
        models = [own.create(seed).state_dict() for seed in range(2)]
        for method in ("distillation", "gated_refit"):
            if known:
                assert checkpoint_problem(own, models, method=method).encoders is not None
                continue
            with pytest.raises(MergeError, match="your own class of bodies"):
                checkpoint_problem(own, models, method=method)


def test_gates_teach_who_sees_by_mixtures_alone():
    problem, options = encoders_problem("mlp on clouds"), {"teacher": "density_gated_ensemble"}
    with pytest.raises(MergeError, match="With memory or encoders"):
        merge_by("distillation", problem, **options)
    mixtures: Any = {**options, "mixtures": 2, "rank": 12}
    start, taught = (merge_by("distillation", problem, **mixtures, steps=k) for k in (0, 300))
    models = with_common_encoders(problem, start.state, TrafficMeter())
    teacher = merge_by("density_gated_ensemble", replace(problem, models=models)).model
    gaps = []
    for state in (start.state, taught.state):
        errors = [
            acted_by("mlp on clouds", state, each) - teacher(each).detach()
            for each in (seen("mlp on clouds", robot) for robot in range(2))
        ]
        gaps.append(float(torch.cat(errors).square().mean()))
    assert gaps[1] < 0.7 * gaps[0]


def test_without_encoders_there_are_none_to_share():
    with pytest.raises(MergeError, match="encoders are unknown"):
        problem = encoders_problem("mlp on state")
        with_common_encoders(problem, problem.models[0], TrafficMeter())


_TWO_CLOUDS = Blueprint.of(
    PolicyConfig(body=BODIES["elman"], clouds=PointNetConfig(widths=(12, 16))),
    {"tool_cloud": CLOUD["point_cloud"], "object_cloud": CLOUD["point_cloud"]} | STATE,
    ACTION,
)
CLOUDS = {
    "elman": BLUEPRINTS["elman on clouds"],
    "mlp": BLUEPRINTS["mlp on clouds"],
    "two clouds": _TWO_CLOUDS,
}


@pytest.mark.parametrize("name", CLOUDS)
def test_permuted_copies_on_clouds_are_compressed_into_their_function(name):
    """Units of all layers of the encoder are chosen, too: of each copy one."""
    blueprint = CLOUDS[name]
    problem = problem_of(blueprint, [blueprint.create(1).state_dict()] * 2)
    generator = np.random.default_rng(0)
    copies = [
        problem.symmetry.apply(problem.group.random(generator), each) for each in problem.models
    ]
    problem = replace(problem, models=copies)
    assert (
        error_of(blueprint, problem, merge_by("structured_compression", problem, ridge=1e-8)) < 1e-3
    )


@pytest.mark.parametrize("name", CLOUDS)
def test_different_policies_on_clouds_are_nearer_to_their_labels_than_averages(name):
    blueprint = CLOUDS[name]
    problem = problem_of(blueprint, [blueprint.create(seed).state_dict() for seed in range(3)])
    error = error_of(blueprint, problem, merge_by("structured_compression", problem))
    narrow = error_of(blueprint, problem, merge_by("structured_compression", problem, width=6))
    for method in ("naive_average", "git_rebasin"):
        assert error < error_of(blueprint, problem, merge_by(method, problem))
    assert error < narrow < 1.0


def test_a_frozen_encoder_is_kept_as_it_is_and_may_have_norms():
    blueprint = BLUEPRINTS["mlp on frozen images"]
    first, *others = [dict(blueprint.create(seed).state_dict()) for seed in range(3)]
    encoder = {name: tensor for name, tensor in first.items() if name.startswith("images.")}
    problem = problem_of(blueprint, [first, *({**each, **encoder} for each in others)])
    for width in (None, 12):
        result = merge_by("structured_compression", problem, width=width)
        assert all(torch.equal(result.state[name], tensor) for name, tensor in encoder.items())
        average = error_of(blueprint, problem, merge_by("naive_average", problem))
        assert error_of(blueprint, problem, result) < average
    assert len(encoder) > 60
    differing = [first, others[0]]  # not what all share
    with pytest.raises(MergeError, match="fixed order"):
        merge_by("structured_compression", problem_of(blueprint, differing))


def test_encoders_with_norms_that_robots_train_are_refused_before_anyone_is_asked():
    blueprint = BLUEPRINTS["mlp on images"]
    problem = problem_of(blueprint, [blueprint.create(seed).state_dict() for seed in range(2)])
    holders = [replace(each, batches=None) for each in problem.data_holders]  # pyright: ignore
    with pytest.raises(MergeError, match=r"cannot merge .*BatchNorm.* frozen encoder"):
        merge_by("structured_compression", replace(problem, data_holders=holders))
