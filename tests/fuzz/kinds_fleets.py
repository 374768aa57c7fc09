"""Messages of fleets and of merging: what robots are sent, and what they answer."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from support import fleet_cases
from support.damage import damaged
from support.small_datasets import Drawn, a_header, write
from support.streaming_cases import COMMON

from fleet_merging.errors import MessageError
from fleet_merging.moments.affine_maps import affine_maps
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.queries.query import LossQuery, MixtureQuery, MomentQuery
from fleet_merging.queries.validity import (
    checked_loss,
    checked_mixture,
    checked_moments,
)
from fleet_tools.baselines.federated import compact
from fleet_tools.baselines.federated.messages import (
    Assignment,
    Change,
    ChangeRequest,
    LocalUpdate,
    Message,
    TrainRequest,
    checked_change,
    checked_update,
    decode,
    encode,
)
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import MAX_EPOCHS, FleetClient
from fleet_tools.baselines.federated.transport import RobotHost
from fleet_tools.baselines.flower.protection import Task, read_task
from fleet_tools.baselines.flower.records import DataQuestion, NodeReport, read_value
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import HAND, RawDataConfig
from fleet_tools.dataset.uploads import decode as decode_uploads
from fleet_tools.dataset.uploads import encode as encode_uploads
from fleet_tools.errors import DatasetError
from fleet_tools.storage.integers import packed, unpacked
from fuzz.kinds_tensors import changed_tensors
from fuzz.mutations import changed_json, pick, scalar
from fuzz.running import Subject, require, require_same_after_json

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
        self.plan: FleetPlan = fleet_cases.plan_of(data, **COMMON, streaming=streaming, robots=1)
        self.assignment: Assignment = self.plan.assignments[0]
        self.robot = FleetClient(self.assignment)
        self.weights = self.assignment.blueprint.create(3).state_dict()
        self.size = sum(each.numel() for each in self.weights.values())
        training = fleet_cases.request(self.plan)
        self.query = LossQuery(self.weights, 1)
        model = self.assignment.blueprint.create()
        self.maps = list(affine_maps(model).values())
        self.moments = MomentQuery(self.weights, tuple(each.name for each in self.maps[:2]))
        self.mixture = MixtureQuery(3, 1, 2)
        messages: dict[str, Message] = {
            "train": training,
            "change": ChangeRequest(training, None, 1),
            "aligned": ChangeRequest(training, self.weights, 1),
            "loss": self.query,
            "moments": self.moments,
            "mixture": self.mixture,
        }
        self.requests = {name: encode(each) for name, each in messages.items()}
        answers = {name: self.robot.answer(each) for name, each in messages.items()}
        trained: Any = answers["train"]
        zeros = np.zeros(self.size, np.float32)
        answers["vector"] = Change(trained.round, trained.steps, trained.loss, zeros)
        self.answers = {name: encode(each) for name, each in answers.items()}


def robot_requests(folder: Path) -> Subject:
    """Messages to robots: to train, to send a change, about losses and moments."""
    fleet = _Fleet(folder)

    def make(generator: np.random.Generator) -> tuple[str, bytes]:
        kind = pick(generator, tuple(fleet.requests))
        return kind, changed_tensors(fleet.requests[kind], generator)

    def read(given: tuple[str, bytes]) -> tuple[Message, Any]:
        message = decode(given[1])
        return message, fleet.robot.answer(message)

    def check(given: tuple[str, bytes], read: tuple[Message, Any]) -> None:
        asked, answer = read
        training = asked.training if isinstance(asked, ChangeRequest) else asked
        if isinstance(training, TrainRequest):
            # losses of finite models may be infinite, which `robot_answers` finds
            require(answer.round == training.round, "another round")
            require(training.epochs > 0 <= training.epoch, "no epochs")
            require(training.epochs <= MAX_EPOCHS, "more epochs than anybody waits for")

    return Subject(make, read, check)


def robot_answers(folder: Path) -> Subject:
    """Answers of robots, as those who asked read them."""
    fleet = _Fleet(folder)
    counts = [each.numel() for each in fleet.weights.values()]
    readers: dict[str, Callable[[object], Any]] = {
        "train": lambda answer: checked_update(answer, 1, fleet.weights),
        "vector": lambda answer: checked_change(answer, 1, counts, None),
        "change": lambda answer: checked_change(answer, 1, counts, _BITS),
        "aligned": lambda answer: checked_change(answer, 1, counts, _BITS),
        "loss": lambda answer: checked_loss(answer, fleet.query)[0],
        "moments": lambda answer: checked_moments(answer, fleet.moments, maps=fleet.maps)[0],
        "mixture": lambda answer: checked_mixture(answer, fleet.mixture)[0],
    }

    def make(generator: np.random.Generator) -> tuple[str, bytes]:
        kind = pick(generator, tuple(readers))
        return kind, changed_tensors(fleet.answers[kind], generator)

    def read(given: tuple[str, bytes]) -> Any:
        return readers[given[0]](decode(given[1]))

    def check(given: tuple[str, bytes], answer: Any) -> None:
        if isinstance(answer, dict):
            for each in answer.values():
                require(torch.isfinite(each.inputs).all(), "a moment is not finite")
        elif isinstance(answer, StateMixture):
            drawn = answer.sequences(4, 30, torch.Generator().manual_seed(0))
            require(drawn.shape == (4, 30, answer.size), "sequences of another shape")
        else:
            require(np.isfinite(answer.loss), "the loss is not finite")
            if isinstance(answer, LocalUpdate):
                again = checked_update(decode(encode(answer)), 1, fleet.weights)
                require(again.steps == answer.steps > 0, "other steps")
            elif hasattr(answer, "vector"):
                require(answer.vector.shape == (fleet.size,), "another size")
                require(np.isfinite(answer.vector).all(), "a change is not finite")

    return Subject(make, read, check)


def uploads(folder: Path) -> Subject:
    """Demonstrations and answers as few bytes, some with a digest that fits."""
    fleet, data = _Fleet(folder / "fleet"), folder / "clouds"
    header = a_header({HAND: ((3, 4), "float32"), "point_cloud": ((6, 4), "float32")})
    write(data, Drawn([4, 2], [True, True], 0, labelled=True), header)
    samples = Samples(data)
    raw, tried = encode_uploads(samples, [data], RawDataConfig()), RawDataConfig(cloud_every=2)
    answers = [
        compact.encode(decode(each), compact.UploadConfig(bits=8))
        for name, each in fleet.answers.items()
        if name in ("train", "loss", "moments", "mixture")
    ]
    place = iter(range(10**9))

    def make(generator: np.random.Generator) -> tuple[bool, bytes]:
        is_raw = bool(generator.integers(2))
        whole = raw[8:] if is_raw else pick(generator, answers)
        changed = _with_other_numbers(whole, 4 * is_raw, generator)
        if not is_raw:
            return False, changed
        digest = hashlib.blake2b(changed, digest_size=8).digest()
        return True, (digest if generator.integers(8) else raw[:8]) + changed

    def read(given: tuple[bool, bytes]) -> Any:
        is_raw, content = given
        if not is_raw:
            return compact.decode(content)
        config = pick(np.random.default_rng(len(content)), (RawDataConfig(), tried))
        names, output = list(samples.observation), folder / str(next(place))
        try:
            folders = decode_uploads(content, [header], names, config, output)
        except DatasetError:
            require(not output.exists(), "what is refused was written in part")
            raise
        return Samples(folders) if folders else None

    def check(given: tuple[bool, bytes], found: Any) -> None:
        if isinstance(found, Samples):
            digest, body = given[1][:8], given[1][8:]
            require(digest == hashlib.blake2b(body, digest_size=8).digest(), "another digest")
            batch = found.read(np.arange(found.lengths.sum()))  # which checks all numbers
            require(len(batch["action"]) > 0, "an episode without steps")

    return Subject(make, read, check)


def _with_other_numbers(content: bytes, size: int, generator: np.random.Generator) -> bytes:
    """Returns columns, behind their size in some bytes, with damage or with other numbers."""
    if generator.integers(3) == 0:
        return damaged(content, generator)
    columns = unpacked(content[size:], 2**20)
    for _ in range(int(generator.integers(1, 3))):
        index = int(generator.integers(len(columns)))
        column = columns[index].copy()
        match int(generator.integers(4)):
            case 0 if len(column):
                odd = (-1, 0, 1, 7, 255, 2**31, -(2**40), 2**62)
                column[generator.integers(len(column))] = pick(generator, odd)
            case 1:
                column = column[: len(column) // 2]
            case 2:
                column = np.append(column, 1)
            case _:
                columns.insert(index, column)
        columns[index] = column
    found = packed(columns)
    return len(found).to_bytes(4, "little")[:size] + found


def flower_records(folder: Path) -> Subject:
    """Values in Flower's messages, and assignments of robots."""
    fleet = _Fleet(folder)
    question = DataQuestion(blueprint=fleet.plan.blueprint, by="tool")
    data = {"episodes": 3, "content_digest": "0" * 16, "tasks": ["hammer"], "data_bytes": 9}
    data["episode_counts"] = {"claw": 3}
    report = NodeReport.model_validate({"partition": 0, "partitions": 2, "data": data})
    task = Task(assignment=fleet.assignment, round=1, epoch=0, epochs=2)
    whole = (fleet.assignment, question, report, task)
    host = RobotHost()

    def make(generator: np.random.Generator) -> tuple[Any, Any]:
        value = pick(generator, whole)
        if generator.integers(20) == 0:
            return value, scalar(generator)
        text = changed_json(value.to_json(), generator)
        return value, text.decode(errors="replace")

    def read(given: tuple[Any, Any]) -> Any:
        value, text = given
        if isinstance(value, Task):
            return read_task(text)
        record = SimpleNamespace(content=_Content({"value": {"value": text}}))
        found = read_value(type(value), record)
        if isinstance(value, Assignment):
            with contextlib.suppress(MessageError):
                host.answer(text, cast(Message, b"nothing"))
        return found

    def check(given: tuple[Any, Any], found: Any) -> None:
        require_same_after_json(found)

    return Subject(make, read, check)


class _Content(dict):
    """Has records as Flower's `RecordDict` has them; Flower itself is no part of the tests' set."""

    @property
    def config_records(self) -> Mapping[str, Any]:
        return self
