"""Answers, messages and stored exchanges that lie are left out or asked for again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from support.damage import damaged
from support.fleet_cases import RecordingTransport, answered, local, plan_of, same
from support.streaming_cases import COMMON, Ordered, stream

from fleet_tools.baselines.federated.messages import LocalUpdate, LocalUpdateRequest
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    decode_change_request,
    decode_rounded,
    decode_vector,
    encode_change_request,
    encode_rounded,
    encode_vector,
)
from fleet_tools.baselines.federated.streaming.partial import Partial
from fleet_tools.baselines.federated.streaming.quantization import quantize
from fleet_tools.baselines.federated.streaming.sums import FixedPointSum
from fleet_tools.baselines.federated.streaming.vectors import sizes
from fleet_tools.baselines.federated.transport import LostRobot
from fleet_tools.baselines.merging.errors import MessageError


@pytest.mark.parametrize(
    "spoil",
    [
        lambda update, vector: encode_vector(update, vector[:-1]),
        lambda update, vector: encode_vector(update, vector.astype(np.float64)),
        lambda update, vector: encode_vector(update, np.full_like(vector, np.nan)),
        lambda update, vector: encode_vector(update, np.full_like(vector, 1e9)),
        lambda update, vector: encode_vector(replace(update, round=2), vector),
        lambda update, vector: encode_vector(replace(update, steps=0), vector),
        lambda update, vector: encode_vector(replace(update, steps=2**40), vector),
        lambda update, vector: encode_vector(replace(update, loss=float("nan")), vector),
        lambda update, vector: b"nothing",
    ],
    ids=["short", "double", "nan", "huge", "round", "steps", "heavy", "loss", "bytes"],
)
def test_an_invalid_answer_is_left_out(data: Path, spoil: Callable[..., bytes]) -> None:
    plan = plan_of(data, **COMMON, streaming={}, merge_every=None)
    base = plan.first_base()
    assert base is not None
    size = sum(sizes(base))

    def tamper(robot: int, before: int, answer: bytes | LostRobot) -> bytes | LostRobot:
        if robot != 1:
            return answer
        change = decode_vector(answered(answer), 1, size)
        return spoil(LocalUpdate(1, change.steps, change.loss, {}), change.vector)

    (result,) = stream(plan, RecordingTransport(local(plan), tamper))
    (others,) = stream(plan, Ordered(local(plan), silent=(1,)))
    assert result.robots[1].left_out and same(result.weights, others.weights)


def test_damaged_messages_are_refused_by_one_typed_error() -> None:
    generator = np.random.default_rng(0)
    weights = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    training, update = LocalUpdateRequest(1, 0, 1, weights), LocalUpdate(1, 7, 0.5, {})
    vector = np.linspace(-1, 1, 10, dtype=np.float32)
    levels, largest = quantize(vector, 1.0, 8, generator), np.ones(2, np.float32)
    reads: list[tuple[bytes, Callable[[bytes], object]]] = [
        (encode_change_request(ChangeRequest(training, weights, 1000)), decode_change_request),
        (encode_vector(update, vector), lambda each: decode_vector(each, 1, 10)),
        (
            encode_rounded(update, levels, largest, 8),
            lambda each: decode_rounded(each, 1, [6, 4], 8),
        ),
    ]
    outcomes = []
    for message, read in reads:
        read(message)
        for _ in range(300):
            try:
                read(damaged(message, generator))
                outcomes.append("read")
            except MessageError:
                outcomes.append("refused")
    assert outcomes.count("refused") > 500  # any other error ends the test


def test_a_robot_of_another_fleet_refuses_a_request(data: Path) -> None:
    (assignment, *_) = plan_of(data).assignments
    request = encode_change_request(ChangeRequest(LocalUpdateRequest(1, 0, 1, None), None, 1000))
    with pytest.raises(MessageError, match="does not stream"):
        FleetRobot(assignment).answer(request)


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
