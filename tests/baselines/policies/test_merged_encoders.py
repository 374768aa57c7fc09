"""Policies with encoders, merged by distillation from Gaussians of what common encoders compute."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.policy_cases import ACTION, BLUEPRINTS, BODIES, CLOUD, made, observations

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.methods.common_encoders import with_common_encoders
from fleet_merging.methods.registry import merge
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.query import MixtureQuery
from fleet_merging.queries.traffic import DataHolderError, TrafficMeter
from fleet_merging.symmetry.table import State
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem, merged_checkpoint
from fleet_tools.baselines.policies.network import FEATURES
from fleet_tools.baselines.policies.part_configs import OwnClassConfig
from fleet_tools.utils.imports import TRUSTED_MODULES

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
    return replace(local, batches=lambda: [LabelledBatch((observed,), labels)])


def problem_of(name: str, robots: int = 2) -> MergeProblem:
    models = [made(name, robot).state_dict() for robot in range(robots)]
    return checkpoint_problem(
        BLUEPRINTS[name], models, [holder(name, robot) for robot in range(robots)]
    )


def acting(name: str, state: State, observed: dict[str, torch.Tensor]) -> torch.Tensor:
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
    problem = problem_of(name, 1)
    (same,) = with_common_encoders(problem, problem.models[0], TrafficMeter())
    for key, tensor in problem.models[0].items():
        torch.testing.assert_close(same[key], tensor, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SEEING)
def test_models_act_as_before_behind_encoders_with_features_in_other_orders_and_units(name):
    """Features that are permuted and scaled hold the same; moments alone tell a model how."""
    problem, observed = problem_of(name, 1), seen(name, 0)
    own, last = problem.models[0], 1  # of two layers
    count = len(own[f"clouds.layers.{last}.bias"])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    units = torch.linspace(0.5, 2, count)
    other = dict(own)
    for part, scale in (("weight", units[:, None]), ("bias", units)):
        other[f"clouds.layers.{last}.{part}"] = scale * own[f"clouds.layers.{last}.{part}"][order]
    before = acting(name, own, observed)
    spoilt = float((acting(name, other, observed) - before).square().mean())
    (fitted,) = with_common_encoders(problem, other, TrafficMeter())
    after = float((acting(name, fitted, observed) - before).square().mean())
    assert torch.equal(fitted[f"clouds.layers.{last}.bias"], other[f"clouds.layers.{last}.bias"])
    assert after < 0.01 * spoilt


@pytest.mark.parametrize("name", ["mlp on clouds", "elman on clouds"])
def test_a_student_that_sees_comes_nearer_to_its_teacher_and_keeps_the_encoders(name):
    problem = problem_of(name)
    options: Any = {"teacher": "concatenation", "start": "compress", "mixtures": 4, "rank": 12}
    result = merge("distillation", problem, **options, states=2000, steps=300)
    start = merge("distillation", problem, **options, states=2000, steps=0)
    assert result.traffic == start.traffic
    models = with_common_encoders(problem, start.state, TrafficMeter())
    taught = merge("concatenation", replace(problem, models=models))
    gaps = []
    for state in (start.state, result.state):
        errors = [
            acting(name, state, observed) - _mean_of(name, taught.members, observed)
            for observed in (seen(name, robot) for robot in range(2))
        ]
        gaps.append(float(torch.cat(errors).square().mean()))
    assert gaps[1] < 0.9 * gaps[0]
    for key, tensor in start.state.items():
        assert torch.equal(result.state[key], tensor) == key.startswith("clouds.")
    assert merged_checkpoint(BLUEPRINTS[name], result).blueprint == BLUEPRINTS[name]


def _mean_of(name: str, members: Any, observed: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack([acting(name, each, observed) for each in members]).mean(0)


def test_who_sees_is_asked_about_a_model_and_who_does_not_is_not():
    sees, model = holder("mlp on clouds", 0), made("mlp on clouds").state_dict()
    mixture: Any = sees.answer(MixtureQuery(3, 1, 5, model))
    width = made("mlp on clouds").features(seen("mlp on clouds", 0)).shape[-1]
    assert mixture.axes.shape == (width, 5) and mixture.size == width
    whole: Any = sees.answer(MixtureQuery(3, 1, 10**6, model))
    assert whole.axes is None and whole.size == width
    for asked in (MixtureQuery(3, 1), MixtureQuery(3, 1, 5, made("gru on clouds").state_dict())):
        with pytest.raises(MessageError, match=r"features of a model|another architecture"):
            sees.answer(asked)
    blind, own = holder("mlp on state", 0), made("mlp on state").state_dict()
    with pytest.raises(MessageError, match="features of a model"):
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
    problem = replace(problem_of("mlp on clouds"), data_holders=[liar, holder("mlp on clouds", 1)])
    with pytest.raises(DataHolderError, match="states of 5 numbers") as error:
        merge("distillation", problem, **options)
    assert error.value.holder is liar


def test_ensembles_and_own_classes_that_see_are_refused_with_a_reason(monkeypatch):
    blueprint = BLUEPRINTS["mlp on clouds"]
    several = merged_checkpoint(blueprint, merge("ensemble", problem_of("mlp on clouds")))
    with pytest.raises(MergeError, match="gate"):
        checkpoint_problem(several.blueprint, [several.weights] * 2)
    monkeypatch.setenv(TRUSTED_MODULES, "support.own_parts")
    encoder = OwnClassConfig(name="support.own_parts:MeanOfPoints", arguments={"width": 5})
    own = Blueprint.of(PolicyConfig(body=BODIES["mlp"], clouds=encoder), CLOUD, ACTION)
    models = [own.create(seed).state_dict() for seed in range(2)]
    with pytest.raises(MergeError, match="classes of a user's own"):
        checkpoint_problem(own, models, method="distillation")


def test_gates_do_not_teach_who_sees():
    for teacher in ("density_gate", "gated_refit"):
        with pytest.raises(MergeError, match="concatenation"):
            merge("distillation", problem_of("mlp on clouds"), teacher=teacher, mixtures=2)
    with pytest.raises(MergeError, match="no encoders that are known"):
        problem = problem_of("mlp on state")
        with_common_encoders(problem, problem.models[0], TrafficMeter())
