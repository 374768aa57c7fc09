"""Robots answer with moments, by which methods merge."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import local, plan_of, run_rounds
from support.shares import crossed

from fleet_merging.errors import MergeError
from fleet_merging.methods.registry import merge
from fleet_tools.baselines.federated.messages import Message
from fleet_tools.baselines.federated.round_messages import RobotGroup, RoundMessages
from fleet_tools.baselines.federated.rounds import merge_problem, robot_data_holders
from fleet_tools.baselines.federated.transport import Answers, Transport

MLP = {"body": {"type": "mlp", "layers": 1, "width": 6}}


@pytest.mark.parametrize(
    ("body", "method"),
    crossed(
        ["elman", "lstm", "gru", "mlp", "transformer"],
        ["regmean", "least_squares", "head_refit"],
        every=3,
    ),
)
def test_policies_of_every_body_are_merged(data: Path, body: str, method: str) -> None:
    sizes = {"heads": 2, "feedforward": 8, "context": 3} if body == "transformer" else {}
    policy = {"body": {"type": body, "layers": 2, "width": 6, **sizes}}
    plan = plan_of(data, policy=policy, method=method, options={"alignment": "activations"})
    for result in run_rounds(plan):
        assert np.isfinite(result.loss)
        assert all(robot.left_out is None for robot in result.robots.values())


def test_statistics_are_counted_and_do_not_grow_with_the_data(data: Path, tmp_path: Path) -> None:
    averaged, fitted = (
        run_rounds(plan_of(data, policy=MLP, merge_every=None, method=method))[0]
        for method in ("naive_average", "regmean")
    )
    for robot in fitted.robots:
        one, other = averaged.robots[robot], fitted.robots[robot]
        weights = one.uploaded_bytes
        assert other.messages == one.messages + 1
        assert weights < other.downloaded_bytes - one.downloaded_bytes + 1000
        # Triangles of 14 x 14 and 7 x 7 in single precision, and names.
        assert 0 < other.uploaded_bytes - weights - 4 * (14 * 15 + 7 * 8) // 2 < 400


def test_the_base_is_needed_to_refit_it(data: Path) -> None:
    with pytest.raises(MergeError, match="no weights from which"):
        run_rounds(plan_of(data, policy=MLP, method="head_refit", options={"of": "base"}))


class _Counting:
    """Counts exchanges."""

    def __init__(self, inner: Transport) -> None:
        self._inner, self.sizes = inner, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def exchange(self, messages: Mapping[int, Message], **options: Any) -> Answers:
        self.sizes.append(len(messages))
        return self._inner.exchange(dict(reversed(list(messages.items()))), **options)


@pytest.mark.parametrize("method", ["density_gated_ensemble", "gated_refit", "concatenation"])
def test_all_robots_are_asked_in_one_exchange_and_their_order_does_not_matter(
    data: Path, method: str
) -> None:
    plan = plan_of(data, policy=MLP)
    (first, *_) = run_rounds(plan, count=1)
    models = list(first.robot_weights.values())
    merged = []
    for counting in (_Counting(local(plan)), _Counting(local(plan))):
        transport: Any = counting if merged else local(plan)
        holders = robot_data_holders(plan, RobotGroup(RoundMessages(transport)), [0, 1, 2])
        merged.append(merge(method, merge_problem(plan, 1, models, [1, 2, 3], holders)))
    assert counting.sizes == [3] * (2 if method == "gated_refit" else 1)
    for one, other in zip(merged[0].members, merged[1].members, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert merged[0].traffic == merged[1].traffic
