"""Answers, messages and stored exchanges that lie are left out or asked for again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from support.fleet_cases import RecordingTransport, answered, local, plan_of, run_rounds, same
from support.streaming_cases import COMMON, Ordered

from fleet_merging.errors import MessageError
from fleet_tools.baselines.federated.aggregation import FixedPointSum
from fleet_tools.baselines.federated.messages import (
    Answer,
    Change,
    ChangeRequest,
    LocalUpdate,
    TrainRequest,
)
from fleet_tools.baselines.federated.partial import Partial
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.baselines.federated.vectors import sizes


def with_vector(change: Change, vector: np.ndarray) -> Change:
    return replace(change, vector=vector)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda change: with_vector(change, change.vector[:-1]),
        lambda change: with_vector(change, change.vector.astype(np.float64)),
        lambda change: with_vector(change, np.full_like(change.vector, np.nan)),
        lambda change: with_vector(change, np.full_like(change.vector, 1e9)),
        lambda change: replace(change, round=2),
        lambda change: replace(change, steps=0),
        lambda change: replace(change, steps=2**40),
        lambda change: replace(change, loss=float("nan")),
        lambda change: LocalUpdate(1, change.steps, change.loss, {}),
        lambda change: {},
    ],
    ids=["short", "double", "nan", "huge", "round", "steps", "heavy", "loss", "kind", "moments"],
)
def test_an_invalid_answer_is_left_out(data: Path, spoil: Callable[..., Answer]) -> None:
    plan = plan_of(data, **COMMON, streaming={}, merge_every=None)

    def tamper(robot: int, before: int, answer: Answer | LostClient) -> Answer | LostClient:
        return spoil(answered(answer)) if robot == 1 else answer

    (result,) = run_rounds(plan, RecordingTransport(local(plan), tamper))
    (others,) = run_rounds(plan, Ordered(local(plan), silent=(1,)))
    assert result.robots[1].left_out and same(result.weights, others.weights)


def test_a_robot_of_another_fleet_refuses_a_request(data: Path) -> None:
    (assignment, *_) = plan_of(data).assignments
    request = ChangeRequest(TrainRequest(1, 0, 1, None), None, 1000)
    with pytest.raises(MessageError, match="does not stream"):
        FleetClient(assignment).answer(request)


@pytest.mark.parametrize("damage", [b"", b"nothing", None])
def test_a_damaged_exchange_is_asked_for_again(
    large: Path, tmp_path: Path, damage: bytes | None
) -> None:
    plan = plan_of(large, **COMMON, robots=4, streaming={}, merge_every=None)
    other = plan_of(large, **COMMON, robots=4, streaming={}, policy={"body": {"type": "mlp"}})
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        if damage is None:  # of another network
            base = other.first_base()
            assert base is not None
            total = FixedPointSum.zero(sum(sizes(base)))
            writer.save_partial(Partial(1000, base, total, {}, (0, 1, 2, 3)))
        else:
            (tmp_path / "fleet/exchange.safetensors").write_bytes(damage)
        assert writer.partial() is None


@pytest.mark.parametrize(
    "lie",
    [
        {"waiting": (0, 1, 2, 999)},
        {"waiting": (-1,)},
        {"session": -5},
        {"total": FixedPointSum(np.zeros(7, np.int64))},
        {"count": 4, "weight": 0},
        {"count": 3, "weight": 30},
        {"count": -1, "weight": 5},
        {"count": 1, "weight": 2**40},
    ],
    ids=["stranger", "negative", "round", "size", "weightless", "many", "fewer", "heavy"],
)
def test_an_exchange_that_lies_is_asked_for_again(
    large: Path, tmp_path: Path, lie: dict[str, Any]
) -> None:
    plan = plan_of(large, **COMMON, robots=4, streaming={}, merge_every=None)
    base = plan.first_base()
    assert base is not None
    zero = FixedPointSum.zero(sum(sizes(base)))
    honest = Partial(1000, base, zero, {}, (0, 1, 2, 3))
    total = replace(zero, **{name: lie.pop(name) for name in ("count", "weight") if name in lie})
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        writer.save_partial(honest)
        assert writer.partial() is not None
        writer.save_partial(replace(honest, **{"total": total, **lie}))
        assert writer.partial() is None
        assert run(writer, local(plan)).rounds[0].tally is not None
