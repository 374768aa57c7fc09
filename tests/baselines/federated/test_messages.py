"""Messages hold weights, losses, gradients and counts; one with anything else is refused."""

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from safetensors.torch import load, save
from support.fleet_cases import (
    RecordingTransport,
    answered,
    local,
    plan_of,
    run_rounds,
    same,
)
from support.streaming_cases import COMMON

from fleet_merging.errors import MessageError
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.queries.query import (
    LossAnswer,
    LossQuery,
    MixtureQuery,
    MomentQuery,
)
from fleet_tools.baselines.federated.messages import (
    CODECS,
    Assignment,
    Change,
    ChangeRequest,
    LocalUpdate,
    Message,
    RoundedChange,
    TrainRequest,
    checked_update,
    decode,
    encode,
    size_of,
)
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.dataset.samples import Samples

STATE = {"b": torch.arange(3.0), "a": torch.ones(2, 2), "count": torch.tensor(7)}
UPDATE = LocalUpdate(4, 30, 0.25, STATE)


SIX = np.arange(6, dtype=np.uint8)
VALUES = [
    TrainRequest(3, 10, 5, None),
    TrainRequest(3, 10, 5, STATE),
    ChangeRequest(TrainRequest(1, 0, 1, STATE), None, 1000),
    ChangeRequest(TrainRequest(1, 0, 1, None), STATE, 1001),
    UPDATE,
    Change(1, 7, 0.5, np.linspace(-1, 1, 10, dtype=np.float32)),
    RoundedChange(1, 7, 0.5, SIX, np.ones(2, np.float32)),
    LossQuery(STATE, 4),
    LossAnswer(0.5, {"a": STATE["a"]}),
    MomentQuery(STATE, ("0",)),
    MixtureQuery(8, 3),
    MixtureQuery(8, 3, 2, STATE),
    StateMixture(1, torch.ones(1), torch.ones(1, 4), torch.ones(1, 4, 4)),
    StateMixture(1, torch.ones(1), torch.ones(1, 4), torch.ones(1, 4, 4), torch.ones(7, 2)),
    {},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_message_is_decoded_as_it_was_encoded_and_says_its_kind(value: Any) -> None:
    message = encode(value)
    again = decode(message)
    assert type(again) is type(value) and encode(again) == message
    assert size_of(value) == len(message)
    kinds = {each.kind: each.type for each in CODECS}
    assert kinds[header_of(message)["__metadata__"]["kind"]] is type(value)
    for kind in kinds.keys() - {header_of(message)["__metadata__"]["kind"]}:
        relabelled = save(load(message), {"kind": kind})
        if isinstance(value, dict):
            continue  # it holds nothing
        with pytest.raises(MessageError):
            decode(relabelled)


def test_updates_are_read_in_the_order_of_the_network() -> None:
    decoded = checked_update(decode(encode(UPDATE)), 4, STATE)
    assert (decoded.round, decoded.steps, decoded.loss) == (4, 30, 0.25)
    assert list(decoded.weights) == list(STATE) and same(decoded.weights, STATE)


def reply_with(**changes: torch.Tensor | None) -> bytes:
    """Returns a reply with other tensors, or without those that are None."""
    tensors = {**load(encode(UPDATE)), **changes}
    kept = {name: each for name, each in tensors.items() if each is not None}
    return save(kept, {"kind": "update"})


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"pickle", "are no"),
        (reply_with(observations=torch.ones(5, 7)), "unexpected tensors: 'observations'"),
        (reply_with(**{"weights.actions": torch.ones(5, 6)}), "actions"),
        (reply_with(**{"weights.a": torch.ones(4, 4)}), r"a is float32 \(4, 4\), not"),
        (reply_with(**{"weights.a": torch.full((2, 2), np.nan)}), "a holds NaN"),
        (reply_with(**{"weights.a": None}), "a is missing"),
        (reply_with(steps=torch.arange(9)), "holds no 'steps', or one that is not"),
        (reply_with(steps=torch.tensor(0)), "with 0 steps"),
        (reply_with(loss=None), "holds no 'loss'"),
        (reply_with(loss=torch.tensor(np.nan, dtype=torch.float64)), "the loss nan"),
        (reply_with(loss=torch.tensor(np.inf, dtype=torch.float64)), "the loss inf"),
        (reply_with(round=torch.tensor(3)), "this one is to round 3"),
    ],
)
def test_a_reply_with_anything_else_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        checked_update(decode(message), 4, STATE)


def header_of(message: bytes) -> dict[str, Any]:
    """Returns names, shapes and metadata of a message, read without the library."""
    (size,) = struct.unpack("<Q", message[:8])
    return json.loads(message[8 : 8 + size])


@pytest.mark.parametrize(
    ("method", "options"), [("naive_average", {}), ("fleet_merge", {"epochs": 1, "steps": 2})]
)
def test_all_messages_of_a_run_hold_weights_gradients_and_counts(
    data: Path, method: str, options: dict[str, int]
) -> None:
    plan = plan_of(data, method=method, options=options)
    transport = RecordingTransport(local(plan))
    rounds = run_rounds(plan, transport)
    shapes = {name: list(each.shape) for name, each in plan.blueprint.create().state_dict().items()}
    kinds = set()
    for _, sent, answer in transport.exchanges:
        for message in (encode(sent), encode(answered(answer))):
            for name, entry in header_of(message).items():
                if name == "__metadata__":
                    assert set(entry) == {"kind"}
                    continue
                kind, dot, weight = name.partition(".")
                kinds.add(kind)
                assert entry["shape"] == (shapes[weight] if dot else [])
    training = {"round", "epoch", "epochs", "steps", "loss", "weights"}
    alignment = {"seed", "wants_gradient", "model", "gradient"}
    assert kinds == training | (alignment if method == "fleet_merge" else set())

    robots = [robot for each in rounds for robot in each.robots.values()]
    assert sum(robot.messages for robot in robots) == len(transport.exchanges)
    sent_bytes = sum(len(encode(sent)) for _, sent, _ in transport.exchanges)
    answered_bytes = sum(len(encode(answered(answer))) for _, _, answer in transport.exchanges)
    assert sent_bytes == sum(robot.downloaded_bytes for robot in robots)
    assert answered_bytes == sum(robot.uploaded_bytes for robot in robots)


@pytest.mark.parametrize(
    ("method", "options"),
    [("fleet_merge", {"epochs": 1, "steps": 2}), ("least_squares", {"alignment": "activations"})],
)
def test_no_row_of_data_is_in_messages_or_assignments(
    data: Path, method: str, options: dict[str, Any]
) -> None:
    plan = plan_of(data, method=method, options=options)
    transport = RecordingTransport(local(plan))
    run_rounds(plan, transport)
    exchanged = b"".join(
        encode(sent) + encode(answered(answer)) for _, sent, answer in transport.exchanges
    )
    written = " ".join(assignment.to_json() for assignment in plan.assignments)
    exchanged += pickle.dumps([FleetClient(each) for each in plan.assignments])  # as Ray sends them
    assert set(Assignment.model_fields) == {
        "robot",
        "data",
        "episodes",
        "content_digest",
        "blueprint",
        "training",
        "initialization",
        "backbone",  # the path of its file
        "backbone_digest",
        "lacks",  # names of observations
        "moment_noise",
        "streaming",
        "method",
        "options",
    }
    for assignment in plan.assignments:
        samples = Samples(assignment.data).subset(assignment.episodes)
        rows = samples.gather(np.arange(len(samples)))
        for array in (rows["action"], *rows["observation"].values()):
            assert len(array) > 5
            for row in array.reshape(len(array), -1):
                assert row.tobytes() not in exchanged and row[:2].tobytes() not in exchanged
                assert repr(float(row[0])) not in written


def test_a_robot_answers_nothing_else(data: Path) -> None:
    robot = FleetClient(plan_of(data).assignments[0])
    others: tuple[Any, ...] = (b"", TrainRequest(1, 0, 1, STATE), UPDATE, None)
    for message in others:
        with pytest.raises(MessageError):
            robot.answer(message)
    with pytest.raises(MessageError, match="another architecture"):
        robot.answer(LossQuery(STATE, None, False))


def test_a_robot_in_this_process_changes_nothing_that_it_is_sent(data: Path) -> None:
    plan = plan_of(data, **COMMON, streaming={"bits": 8})
    weights = plan.blueprint.create(3).state_dict()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    training = TrainRequest(1, 0, 2, weights)
    messages: list[Message] = [training, ChangeRequest(training, weights, 1), LossQuery(weights, 1)]
    robot = FleetClient(plan.assignments[0])
    for message in messages:
        answer = robot.answer(message)
        assert same(weights, before) and not any(each.requires_grad for each in weights.values())
        first = encode(answer)
        if isinstance(answer, LocalUpdate):  # nor does who keeps an answer see the next one
            for name, each in answer.weights.items():
                assert each.data_ptr() != weights[name].data_ptr()
        assert encode(robot.answer(message)) == encode(answer) == first


def test_a_robot_answers_about_moments_of_its_policy_at_another_width_and_of_nothing_else(
    data: Path,
) -> None:
    plan = plan_of(data)
    robot = FleetClient(plan.assignments[0])
    narrow = plan.blueprint.with_width(4)
    assert narrow is not None
    weights = narrow.create(1).state_dict()
    found: Any = robot.answer(MomentQuery(weights, ("head",), "labels"))
    assert found["head"].inputs.shape == (1, 5, 5) and found["head"].targets.shape == (1, 5, 6)
    vast = weights | {"head.weight": torch.zeros(6, 100_000)}  # nothing of this size is made
    other = weights | {"body.core.weight_hh_l0": torch.zeros(12, 5)}
    for each in (vast, other, weights | {"head.weight": torch.zeros(())}):
        with pytest.raises(MessageError, match="other shapes"):
            robot.answer(MomentQuery(each, ("head",), "labels"))
    with pytest.raises(MessageError, match="other shapes"):
        robot.answer(LossQuery(weights, None, False))
