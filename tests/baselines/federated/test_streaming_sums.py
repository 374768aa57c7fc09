"""Streaming sums: equal to a merge of all at once, in any order, with few bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from support.fleet_cases import RecordingTransport, answered, local, plan_of, run_rounds, same
from support.streaming_cases import COMMON, Ordered, furthest

from fleet_tools.baselines.federated.messages import encode, size_of
from fleet_tools.baselines.federated.transport import CachingTransport
from fleet_tools.baselines.federated.vectors import sizes
from fleet_tools.dataset.samples import Samples


@pytest.mark.parametrize("server", [None, {"optimizer": "momentum", "momentum": 0.5}])
def test_streaming_is_the_merge_of_all_at_once(data: Path, server: Any) -> None:
    plan = plan_of(data, **COMMON, merge_every=None, server=server)
    (batch,) = run_rounds(plan)
    (streamed,) = run_rounds(plan_of(data, **COMMON, merge_every=None, server=server, streaming={}))
    assert furthest(streamed.weights, batch.weights) < 1e-7
    assert streamed.loss == pytest.approx(batch.loss, abs=1e-7)
    assert [each.steps for each in streamed.robots.values()] == [
        each.steps for each in batch.robots.values()
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {**COMMON, "streaming": {}},
        {**COMMON, "streaming": {"bits": 4}},
        {"method": "git_rebasin", "streaming": {"passes": 2}},
    ],
    ids=["plain", "rounded", "aligned"],
)
def test_the_order_of_arrival_does_not_matter(large: Path, changes: dict[str, Any]) -> None:
    plan = plan_of(large, robots=6, **changes)
    orders = (lambda robot: robot, lambda robot: -robot, lambda robot: robot * 5 % 6)
    results = [run_rounds(plan, Ordered(local(plan), order)) for order in orders]
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert same(one.weights, two.weights) and one.loss == two.loss


def test_robots_of_one_policy_merge_to_that_policy(data: Path) -> None:
    # With all data, one initialization and one seed, all robots train the same policy.
    plan = plan_of(data, **COMMON, split={"by": "nothing"}, streaming={}, merge_every=None)
    assignment = plan.clients[0].assignment
    copies = tuple(
        replace(client, assignment=assignment.model_copy(update={"robot": robot}))
        for robot, client in enumerate(plan.clients)
    )
    (streamed,) = run_rounds(replace(plan, clients=copies))
    (single,) = run_rounds(
        plan_of(data, **COMMON, split={"by": "nothing"}, merge_every=None), count=1
    )
    assert furthest(streamed.weights, single.robot_weights[0]) < 1e-8


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounded_changes_are_near_those_that_were_sent(large: Path, bits: int) -> None:
    plan = plan_of(large, **COMMON, robots=6, merge_every=None, streaming={"bits": bits})
    recording = RecordingTransport(local(plan))
    (rounded,) = run_rounds(plan, recording)
    (exact,) = run_rounds(plan_of(large, **COMMON, robots=6, merge_every=None, streaming={}))
    base = plan.first_base()
    assert base is not None
    moved = furthest(exact.weights, base)
    assert furthest(rounded.weights, exact.weights) <= moved / (2 ** (bits - 1) - 1) * 3
    size = sum(sizes(base))
    sent = [size_of(answered(answer)) for _, _, answer in recording.exchanges]
    assert max(sent) < size * bits / 8 + 600  # the rest is a header


def test_a_cache_of_replies_lets_changes_through(large: Path, tmp_path: Path) -> None:
    plan = plan_of(large, method="git_rebasin", robots=4, streaming={}, merge_every=None)
    cached = [CachingTransport(local(plan), plan.assignments, tmp_path) for _ in range(2)]
    results = [run_rounds(plan, transport)[0] for transport in (*cached, local(plan))]
    assert same(results[0].weights, results[2].weights)
    assert same(results[1].weights, results[2].weights)


def test_no_row_of_data_is_in_changes(large: Path) -> None:
    plan = plan_of(
        large, method="fleet_merge", options={"steps": 2}, streaming={}, merge_every=None
    )
    recording = RecordingTransport(local(plan))
    run_rounds(plan, recording)
    exchanged = b"".join(
        encode(sent) + encode(answered(answer)) for _, sent, answer in recording.exchanges
    )
    for assignment in plan.assignments:
        samples = Samples(assignment.data).subset(assignment.episodes)
        rows = samples.gather(np.arange(len(samples)))
        for array in (rows["action"], *rows["observation"].values()):
            for row in array.reshape(len(array), -1):
                assert row[:2].tobytes() not in exchanged
