"""Policies that taught their own data, for merges whose right answer is known."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from support.policy_cases import observations

from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.symmetry.table import State
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.merged_checkpoints import (
    checkpoint_problem,
    merged_checkpoint,
    network_like,
)


def problem_of(blueprint: Blueprint, models: Sequence[State], method: str = "") -> MergeProblem:
    """Returns the problem of policies whose own actions are the labels of their data."""
    holders = [_holder(blueprint, state, seed) for seed, state in enumerate(models)]
    return checkpoint_problem(blueprint, models, holders, method=method)


@torch.no_grad()
def _holder(blueprint: Blueprint, state: State, seed: int) -> LocalDataHolder:
    network = blueprint.create().eval()
    network.load_state_dict(state)
    given = observations(blueprint, 12, 9, seed)
    labels = network(given)[0].flatten(0, 1)

    def loss(policy: Any, draw: int | None) -> torch.Tensor:
        return (policy(given)[0].flatten(0, 1) - labels).square().mean()

    like = partial(network_like, blueprint)
    return LocalDataHolder(network, loss, lambda: [LabelledBatch((given,), labels)], resized=like)


def error_of(blueprint: Blueprint, problem: MergeProblem, result: MergeResult) -> float:
    """Returns the mean squared error of a merged policy on the data of all, relative to labels."""
    checkpoint = merged_checkpoint(blueprint, result)
    network = checkpoint.blueprint.create().eval()
    network.load_state_dict(checkpoint.weights)
    holders: Any = problem.data_holders
    with torch.no_grad():
        loss = sum(float(each.loss(network, None)) for each in holders) / len(holders)
    labels = torch.cat([batch.labels for each in holders for batch in each.batches()])
    return loss / float(labels.var())
