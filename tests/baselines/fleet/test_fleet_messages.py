"""Nothing crosses but weights, losses, gradients and counts; whatever else comes is refused."""

import json
import struct

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from fleet_cases import Tapped, local, plan_of, played, same, write_data
from safetensors.torch import load, save

from fleet_tools.baselines.federated.messages import (
    Reply,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    is_request,
)
from fleet_tools.baselines.federated.plan import Assignment
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import Question, decode_question, encode_question
from fleet_tools.dataset.samples import Samples

STATE = {"b": torch.arange(3.0), "a": torch.ones(2, 2), "count": torch.tensor(7)}
REPLY = Reply(4, 30, 0.25, STATE)


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("messages") / "data")


@pytest.mark.parametrize("weights", [None, STATE])
def test_requests_come_back_as_they_were(weights):
    message = encode_request(Request(3, 10, 5, weights))
    back = decode_request(message)
    assert (back.round, back.epoch, back.epochs) == (3, 10, 5)
    assert back.weights is None if weights is None else same(back.weights, STATE)
    assert is_request(message) and not is_request(encode_question(Question(STATE, 0, True)))


def test_replies_come_back_as_they_were():
    back = decode_reply(encode_reply(REPLY), 4, STATE)
    assert (back.round, back.steps, back.loss) == (4, 30, 0.25)
    assert list(back.weights) == list(STATE) and same(back.weights, STATE)


def reply_with(**changes):
    tensors = load(encode_reply(REPLY))
    return save({name: each for name, each in (tensors | changes).items() if each is not None})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"pickle", "are no reply"),
        (reply_with(observations=torch.ones(5, 7)), "holds 'observations'"),
        (reply_with(**{"weights.actions": torch.ones(5, 6)}), "actions is none of its own"),
        (reply_with(**{"weights.a": torch.ones(4, 4)}), r"a is float32 \(4, 4\), not"),
        (reply_with(**{"weights.a": torch.full((2, 2), np.nan)}), "a holds NaN"),
        (reply_with(**{"weights.a": None}), "a is missing"),
        (reply_with(steps=torch.arange(9)), "holds no 'steps', or one that is no"),
        (reply_with(steps=torch.tensor(0)), "with 0 steps"),
        (reply_with(loss=None), "holds no 'loss'"),
        (reply_with(loss=torch.tensor(np.nan, dtype=torch.float64)), "the loss nan"),
        (reply_with(loss=torch.tensor(np.inf, dtype=torch.float64)), "the loss inf"),
        (reply_with(round=torch.tensor(3)), "replies to round 3"),
    ],
)
def test_whatever_else_is_in_a_reply_is_refused(message, said):
    with pytest.raises(MessageError, match=said):
        decode_reply(message, 4, STATE)


def numbers_of(message):
    """Names, shapes and the metadata of a message, read without its library."""
    (size,) = struct.unpack("<Q", message[:8])
    return json.loads(message[8 : 8 + size])


@pytest.mark.parametrize(
    ("method", "options"), [("naive_average", {}), ("fleet_merge", {"epochs": 1, "steps": 2})]
)
def test_all_that_crosses_in_a_run_are_weights_gradients_and_counts(data, method, options):
    plan = plan_of(data, method=method, options=options)
    tapped = Tapped(local(plan))
    rounds = played(plan, tapped)
    shapes = {name: list(each.shape) for name, each in plan.blueprint.create().state_dict().items()}
    kinds = set()
    for _, sent, received in tapped.lines:
        for message in (sent, received):
            assert type(message) is bytes
            for name, told in numbers_of(message).items():
                assert name != "__metadata__"
                kind, dot, weight = name.partition(".")
                kinds.add(kind)
                assert told["shape"] == (shapes[weight] if dot else [])
    trained = {"round", "epoch", "epochs", "steps", "loss", "weights"}
    aligned = {"seed", "wants_gradient", "model", "gradient"}
    assert kinds == trained | (aligned if method == "fleet_merge" else set())

    parts = [part for each in rounds for part in each.parts.values()]
    assert sum(part.traffic.calls for part in parts) == len(tapped.lines)
    for at, way in ((1, "bytes_to_robots"), (2, "bytes_from_robots")):
        crossed = sum(len(line[at]) for line in tapped.lines)
        assert crossed == sum(getattr(part.traffic, way) for part in parts)


def test_no_row_of_data_is_in_what_crosses_nor_in_what_robots_are_told(data):
    plan = plan_of(data, method="fleet_merge", options={"epochs": 1, "steps": 2})
    tapped = Tapped(local(plan))
    played(plan, tapped)
    told = [home.assignment for home in plan.homes]
    crossed = b"".join(b"".join(line[1:]) for line in tapped.lines)
    written = " ".join(each.to_json() for each in told)
    assert set(Assignment.model_fields) == {
        "robot", "data", "episodes", "content_digest", "blueprint", "training", "initialization",
    }  # fmt: skip
    for each in told:
        samples = Samples(each.data).subset(each.episodes)
        rows = samples.gather(np.arange(len(samples)))
        for array in (rows["action"], *rows["observation"].values()):
            assert len(array) > 5
            for row in array.reshape(len(array), -1):
                assert row.tobytes() not in crossed and row[:2].tobytes() not in crossed
                assert repr(float(row[0])) not in written


def test_a_robot_answers_nothing_else(data):
    told = plan_of(data).homes[0].assignment
    robot = FleetRobot(told)
    for message in (b"", encode_request(Request(1, 0, 1, STATE)), encode_reply(REPLY)):
        with pytest.raises(MessageError):
            robot.answer(message)
    with pytest.raises(MessageError, match="another architecture"):
        robot.answer(encode_question(Question(STATE, None, False)))


def test_a_reply_that_was_spoilt_on_its_way_leaves_its_robot_out(data):
    plan = plan_of(data, merge_every=1)

    def spoil(robot, before, answer):
        if (robot, before) == (2, 1):
            tensors = load(answer)
            tensors["weights.head.bias"][0] = float("nan")
            return save(tensors)
        return answer

    rounds = played(plan, Tapped(local(plan), spoil))
    assert [each.parts[2].left_out for each in rounds] == [
        None,
        "The weights are not those of this network: head.bias holds NaN or infinity.",
        None,
        None,
    ]
    whole = played(plan_of(data, merge_every=1))
    assert same(rounds[0].weights, whole[0].weights)
    assert not same(rounds[1].weights, whole[1].weights)


def test_who_says_nonsense_while_models_are_aligned_is_left_out(data):
    plan = plan_of(data, method="fleet_merge", options={"epochs": 1, "steps": 3}, merge_every=None)

    def spoil(robot, before, answer):
        if robot == 0 and before == 2:
            return save(load(answer) | {"gradient.actions": torch.ones(5, 6)})
        return answer

    tapped = Tapped(local(plan), spoil)
    (only,) = played(plan, tapped)
    assert "holds 'gradient.actions'" in only.parts[0].left_out
    questions = [(k, decode_question(sent)) for k, sent, _ in tapped.lines if not is_request(sent)]
    asked = [robot for robot, _ in questions]
    last = max(at for at, robot in enumerate(asked) if robot == 0)
    assert sorted(asked[last + 1 :]) == [1] * 3 + [2] * 3  # the others began anew
    assert only.parts[0].traffic.calls == 3
