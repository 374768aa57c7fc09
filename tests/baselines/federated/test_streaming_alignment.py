"""Alignment at home: an epoch of Fleet-Merge or of matching, from one message."""

from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from support.fleet_cases import RecordingTransport, local, plan_of, run_rounds, same
from support.streaming_cases import furthest

from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods.fleet_merge import TRUST, align_with_mean, fleet_merge
from fleet_merging.methods.rebasin import match_models
from fleet_merging.methods.seeded_draws import content_order
from fleet_merging.problem import MergeProblem
from fleet_tools.baselines.federated.changes import align
from fleet_tools.baselines.federated.messages import Message
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.federated.transport import Answers, LocalTransport
from fleet_tools.baselines.training.state import Tensors


def two_trained(data: Path) -> tuple[FleetPlan, list[Tensors]]:
    plan = plan_of(data, merge_every=None)
    (result,) = run_rounds(plan)
    return plan, list(result.robot_weights.values())


def holder_of(plan: FleetPlan):
    return local_data_holder(plan.blueprint, plan.held_out_trajectories, 8)


@pytest.mark.parametrize("method", ["git_rebasin", "fleet_merge"])
def test_a_permuted_policy_is_brought_back(data: Path, method: str) -> None:
    plan, (one, *_) = two_trained(data)
    symmetry, generator = plan.blueprint.symmetry(), np.random.default_rng(0)
    group = symmetry.group(one)
    shuffled = {name: generator.permutation(size[-1]) for name, size in group.sizes.items()}
    permuted = symmetry.apply(shuffled, one)
    options = {"descent": Descent(steps=2)}
    back = align(method, options, symmetry, permuted, one, holder_of(plan), 0)
    assert furthest(back, one) == 0


def test_alignment_at_home_is_an_epoch_of_fleet_merge(data: Path) -> None:
    # Of two models, fleet_merge begins with the matching of the second with the first. With all
    # weight on the first, the average is the first, which each then meets at home.
    plan, (one, two, *_) = two_trained(data)
    symmetry, descent = plan.blueprint.symmetry(), Descent(steps=5)
    problem = MergeProblem(
        symmetry,
        [one, two],
        averaging_weights=[1.0, 0.0],
        data_holders=[holder_of(plan)] * 2,
    )
    result = fleet_merge(problem, epochs=1, descent=descent)
    order = content_order(problem.models)
    place = order.index(1)
    ordered = MergeProblem(
        symmetry,
        [problem.models[index] for index in order],
        averaging_weights=[float(problem.normalized_weights[index]) for index in order],
    )
    start = match_models(ordered)[place]
    mean = ordered.mean(match_models(ordered))
    generator = np.random.default_rng((0, 0, place))
    found = align_with_mean(symmetry, two, start, mean, holder_of(plan), generator, descent, TRUST)
    assert all(np.array_equal(found[name], result.permutations[1][name]) for name in found)


def test_a_second_pass_aligns_with_the_mean_of_the_first(data: Path) -> None:
    recording = {}
    for passes in (1, 2):
        plan = plan_of(data, method="git_rebasin", streaming={"passes": passes}, merge_every=None)
        recording[passes] = RecordingTransport(local(plan))
        run_rounds(plan, recording[passes])
    counts = {passes: len(each.exchanges) for passes, each in recording.items()}
    assert counts == {1: 1 + 3, 2: 1 + 3 + 3}  # the policy of one, then each pass


def test_a_robot_that_forgot_its_training_gives_the_same_bits(data: Path) -> None:
    plan = plan_of(data, method="git_rebasin", streaming={"passes": 2}, merge_every=None)

    class Forgetful(LocalTransport):
        def exchange(
            self, messages: Mapping[int, Message], *, deadline_s: float | None = None
        ) -> Answers:
            for robot in list(messages):
                yield from LocalTransport(plan.assignments).exchange({robot: messages[robot]})

    (remembered,), (forgotten,) = run_rounds(plan), run_rounds(plan, Forgetful(plan.assignments))
    assert same(remembered.weights, forgotten.weights)
