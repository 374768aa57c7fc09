"""Messages of fleets and of merging: what robots are sent, and what they answer."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from support import fleet_cases
from support.streaming_cases import COMMON

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.messages import LocalUpdate, decode_update, encode_update
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import MAX_EPOCHS, FleetRobot
from fleet_tools.baselines.federated.robot_host import RobotHost
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    decode_rounded,
    decode_vector,
    encode_change_request,
)
from fleet_tools.baselines.flower.records import DataQuestion, NodeReport, read_value
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.moments.affine_maps import affine_maps
from fleet_tools.baselines.merging.queries.query import (
    LossQuery,
    MomentQuery,
    checked_loss,
    checked_moments,
)
from fleet_tools.baselines.merging.queries.wire import decode, encode
from fuzz.kernel import Subject, require, require_same_after_json
from fuzz.kinds_tensors import changed_tensors
from fuzz.mutations import changed_json, pick, scalar

_BITS = 8


class _Fleet:
    """A small fleet in this process, which streams, and whole messages of every kind.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        data = fleet_cases.write_data(folder / "data")
        streaming = {"bits": _BITS}
        self.plan: FleetPlan = fleet_cases.plan_of(data, **COMMON, streaming=streaming)
        self.assignment: Assignment = self.plan.assignments[0]
        self.robot = FleetRobot(self.assignment)
        self.weights = self.assignment.blueprint.create(3).state_dict()
        self.size = sum(each.numel() for each in self.weights.values())
        train = fleet_cases.request(self.plan)
        training = fleet_cases.training_request(self.plan)
        self.query = LossQuery(self.weights, 1)
        model = self.assignment.blueprint.create()
        self.maps = list(affine_maps(model).values())
        self.moments = MomentQuery(self.weights, tuple(each.name for each in self.maps[:2]))
        self.requests: dict[str, bytes] = {
            "train": train,
            "change": encode_change_request(ChangeRequest(training, None, 1)),
            "aligned": encode_change_request(ChangeRequest(training, self.weights, 1)),
            "loss": encode(self.query),
            "moments": encode(self.moments),
        }
        self.answers = {name: self.robot.answer(each) for name, each in self.requests.items()}
        vector = torch.zeros(self.size)
        numbers = {
            name: each
            for name, each in load(self.answers["train"]).items()
            if name in ("round", "steps", "loss")
        }
        self.answers["vector"] = save({**numbers, "vector": vector})


def robot_requests(folder: Path) -> Subject:
    """Messages to robots: to train, to send a change, about losses and moments."""
    fleet = _Fleet(folder)

    def make(generator: np.random.Generator) -> tuple[str, bytes]:
        kind = pick(generator, tuple(fleet.requests))
        return kind, changed_tensors(fleet.requests[kind], generator)

    def read(given: tuple[str, bytes]) -> Mapping[str, torch.Tensor]:
        return load(fleet.robot.answer(given[1]))

    def check(given: tuple[str, bytes], answer: Mapping[str, torch.Tensor]) -> None:
        asked = load(given[1])
        # Losses of finite models may be infinite, which `robot_answers` finds.
        if "round" in answer:
            require(int(answer["round"]) == int(asked["round"]), "another round")
            require(int(asked["epochs"]) > 0 <= int(asked["epoch"]), "no epochs")
            require(int(asked["epochs"]) <= MAX_EPOCHS, "more epochs than anybody waits for")

    return Subject(make, read, check)


def robot_answers(folder: Path) -> Subject:
    """Answers of robots, as those who asked read them."""
    fleet = _Fleet(folder)
    counts = [each.numel() for each in fleet.weights.values()]
    readers: dict[str, Callable[[bytes], Any]] = {
        "train": lambda answer: decode_update(answer, 1, fleet.weights),
        "vector": lambda answer: decode_vector(answer, 1, fleet.size),
        "change": lambda answer: decode_rounded(answer, 1, counts, _BITS),
        "aligned": lambda answer: decode_rounded(answer, 1, counts, _BITS),
        "loss": lambda answer: checked_loss(decode(answer), fleet.query),
        "moments": lambda answer: checked_moments(decode(answer), fleet.moments, fleet.maps),
    }

    def make(generator: np.random.Generator) -> tuple[str, bytes]:
        kind = pick(generator, tuple(readers))
        return kind, changed_tensors(fleet.answers[kind], generator)

    def read(given: tuple[str, bytes]) -> Any:
        return readers[given[0]](given[1])

    def check(given: tuple[str, bytes], answer: Any) -> None:
        if isinstance(answer, dict):
            for each in answer.values():
                require(torch.isfinite(each.inputs).all(), "a moment is not finite")
        else:
            require(np.isfinite(answer.loss), "the loss is not finite")
            if isinstance(answer, LocalUpdate):
                again = decode_update(encode_update(answer), 1, fleet.weights)
                require(again.steps == answer.steps > 0, "other steps")
            elif hasattr(answer, "vector"):
                require(answer.vector.shape == (fleet.size,), "another size")
                require(np.isfinite(answer.vector).all(), "a change is not finite")

    return Subject(make, read, check)


def flower_records(folder: Path) -> Subject:
    """Values in Flower's messages, and assignments of robots."""
    fleet = _Fleet(folder)
    question = DataQuestion(blueprint=fleet.plan.blueprint, by="tool")
    data = {"episodes": 3, "content_digest": "0" * 16, "tasks": ["hammer"], "data_bytes": 9}
    data["episode_counts"] = {"claw": 3}
    report = NodeReport.model_validate({"partition": 0, "partitions": 2, "data": data})
    whole = (fleet.assignment, question, report)
    host = RobotHost()

    def make(generator: np.random.Generator) -> tuple[Any, Any]:
        value = pick(generator, whole)
        if generator.integers(20) == 0:
            return value, scalar(generator)
        text = changed_json(value.to_json(), generator)
        return value, text.decode(errors="replace")

    def read(given: tuple[Any, Any]) -> Any:
        value, text = given
        record = SimpleNamespace(content=_Content({"value": {"value": text}}))
        found = read_value(type(value), record)
        if isinstance(value, Assignment):
            with contextlib.suppress(MessageError):
                host.answer(text, b"nothing")
        return found

    def check(given: tuple[Any, Any], found: Any) -> None:
        require_same_after_json(found)

    return Subject(make, read, check)


class _Content(dict):
    """Has records as Flower's `RecordDict` has them; Flower itself is no part of the tests' set."""

    @property
    def config_records(self) -> Mapping[str, Any]:
        return self
