"""Policies with encoders are compressed: clouds with their bodies, frozen encoders as they are."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.policy_cases import ACTION, BLUEPRINTS, BODIES, CLOUD, STATE
from support.policy_merges import error_of, problem_of

from fleet_merging.errors import MergeError
from fleet_merging.methods.registry import merge
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import PointNetConfig

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
    assert error_of(blueprint, problem, merge("compress", problem, ridge=1e-8)) < 1e-3


@pytest.mark.parametrize("name", CLOUDS)
def test_different_policies_on_clouds_are_nearer_to_their_labels_than_averages(name):
    blueprint = CLOUDS[name]
    problem = problem_of(blueprint, [blueprint.create(seed).state_dict() for seed in range(3)])
    error = error_of(blueprint, problem, merge("compress", problem))
    narrow = error_of(blueprint, problem, merge("compress", problem, width=6))
    for method in ("naive_average", "git_rebasin"):
        assert error < error_of(blueprint, problem, merge(method, problem))
    assert error < narrow < 1.0


def test_a_frozen_encoder_is_kept_as_it_is_and_may_have_norms():
    blueprint = BLUEPRINTS["mlp on frozen images"]
    first, *others = [dict(blueprint.create(seed).state_dict()) for seed in range(3)]
    encoder = {name: tensor for name, tensor in first.items() if name.startswith("images.")}
    problem = problem_of(blueprint, [first, *({**each, **encoder} for each in others)])
    for width in (None, 12):
        result = merge("compress", problem, width=width)
        assert all(torch.equal(result.state[name], tensor) for name, tensor in encoder.items())
        average = error_of(blueprint, problem, merge("naive_average", problem))
        assert error_of(blueprint, problem, result) < average
    assert len(encoder) > 60
    differing = [first, others[0]]  # not what all share
    with pytest.raises(MergeError, match="fixed order"):
        merge("compress", problem_of(blueprint, differing))


def test_encoders_with_norms_that_robots_train_are_refused_before_anyone_is_asked():
    blueprint = BLUEPRINTS["mlp on images"]
    problem = problem_of(blueprint, [blueprint.create(seed).state_dict() for seed in range(2)])
    holders = [replace(each, batches=None) for each in problem.data_holders]  # pyright: ignore
    with pytest.raises(MergeError, match=r"cannot merge .*BatchNorm.* frozen encoder"):
        merge("compress", replace(problem, data_holders=holders))
