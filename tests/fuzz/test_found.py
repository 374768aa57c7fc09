"""What fuzzing has found, case by case: each is refused by an error that says what is wrong."""

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from safetensors.torch import load, save
from support import fleet_cases

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.queries import wire
from fleet_merging.queries.query import LossQuery, MomentQuery
from fleet_tools.baselines.federated.messages import decode
from fleet_tools.baselines.federated.messages import encode as encode_message
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.federated.transport import RobotHost
from fleet_tools.baselines.flower.records import NodeReport, read_value
from fleet_tools.baselines.model_files import read_model, read_notes, write_model
from fleet_tools.baselines.policies.checkpoint import CheckpointError
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.baselines.policies.resnet import load_features
from fleet_tools.config.tasks import load_task
from fleet_tools.dataset import Dataset
from fleet_tools.errors import ConfigError, known_errors
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.perception.display import MESHCAT_HOST, open_meshcat
from fleet_tools.policies import array_codec, wire_messages
from fleet_tools.policies.array_codec import ProtocolError
from fleet_tools.policies.sources import find_policy
from fleet_tools.policies.wire_messages import Control, Hello
from fleet_tools.sim.catalog import load_model
from fleet_tools.storage.provenance import read_task_file
from fleet_tools.studio.importing.program import RECORD, edited_files
from fleet_tools.utils.option_parser import key_value


@pytest.fixture(scope="module", name="plan")
def _plan(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fleet_cases.plan_of(fleet_cases.write_data(tmp_path_factory.mktemp("data")))


@pytest.fixture(name="robot")
def _robot(plan: Any) -> FleetClient:
    return FleetClient(plan.assignments[0])


def _with(message: bytes, **others: Any) -> bytes:
    size = int.from_bytes(message[:8], "little")
    metadata = json.loads(message[8 : 8 + size]).get("__metadata__")
    return save({**load(message), **others}, metadata)


# --- Messages to robots -------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["shape", "dtype"])
@pytest.mark.parametrize("moments", [False, True])
def test_a_query_about_weights_of_another_layout_is_refused(plan, robot, change, moments):
    weights = dict(plan.blueprint.create(3).state_dict())
    name = next(iter(weights))
    weights[name] = weights[name].double() if change == "dtype" else weights[name][:1]
    message = MomentQuery(weights, ("head",)) if moments else LossQuery(weights, 0, True)
    with pytest.raises(MessageError, match=f"{name} have other shapes or dtypes"):
        robot.answer(message)


@pytest.mark.parametrize(
    "numbers", [{"epochs": 2**62}, {"epochs": 0}, {"epoch": -1}, {"round": -1}, {"epochs": -1}]
)
def test_a_request_to_train_is_for_a_possible_number_of_epochs(plan, robot, numbers):
    tensors = {name: torch.tensor(number) for name, number in numbers.items()}
    with pytest.raises(MessageError, match=r"expected: 1 to|at least 0"):
        robot.answer(decode(_with(encode_message(fleet_cases.request(plan)), **tensors)))
    assert robot.answer(fleet_cases.request(plan, epochs=4)).round == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "seed", [torch.tensor([1, 2]), torch.tensor(float("nan")), torch.tensor(True)]
)
def test_a_seed_is_one_integer(seed):
    with pytest.raises(MessageError, match="'seed'"):
        wire.decode(_with(wire.encode(LossQuery({}, 1, False)), seed=seed))


def test_what_no_query_has_is_not_dropped(plan, robot):
    weights = plan.blueprint.create(3).state_dict()
    for message in (
        wire.encode(LossQuery(weights, 0, True)),
        wire.encode(MomentQuery(weights, ("head",))),
    ):
        with pytest.raises(MessageError, match=r"unexpected tensors: 'secret'"):
            decode(_with(message, secret=torch.ones(1)))


@pytest.mark.parametrize("field", ["protocol", "policy", "control_period_s", "number", "reset"])
def test_an_array_in_place_of_a_word_or_number_is_no_message(field):
    content = array_codec.encode({"number": 1, field: np.ones(2)})
    for kind in (Hello, Control):
        with pytest.raises(ProtocolError):
            wire_messages.read_value(kind, array_codec.decode(content))


def _lacking_dtype() -> bytes:
    header = json.dumps({"w": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


def test_a_dtype_that_torch_lacks_is_refused(tmp_path):
    (tmp_path / "features.safetensors").write_bytes(_lacking_dtype())
    with pytest.raises(MessageError, match="F4"):
        wire.unpacked(_lacking_dtype(), "reply")
    with pytest.raises(CheckpointError):
        load_features(ResNet18Config(width=4, stages=1).create(), tmp_path / "features.safetensors")


@pytest.mark.parametrize("text", ["", "{", '{"robot": NaN}', "[" * 5000])
def test_assignments_and_values_over_flower_are_strict_json(text):
    class Content(dict):
        config_records = {"value": {"value": text}}

    class Message:
        content = Content()

    with pytest.raises(known_errors(), match=r"JSON|Expecting|number|deeply|Unterminated"):
        RobotHost().answer(text, cast(Any, b""))
    with pytest.raises(MessageError):
        read_value(NodeReport, Message())


# --- Files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("notes", ['{"a": ', '{"a": 1, "a": 2}', "NaN", "[" * 5000])
def test_damaged_notes_of_a_model_are_an_error_of_its_file(tmp_path, notes):
    path = tmp_path / "model.safetensors"
    write_model(path, {"w": torch.ones(2)}, {"a": 1})
    (key,) = _metadata(path)
    path.write_bytes(save({"w": torch.ones(2)}, {key: notes}))
    with pytest.raises(MergeError, match=r"notes of .* cannot be read"):
        read_notes(path)


def _metadata(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size])["__metadata__"]


@pytest.mark.parametrize("files", [["a.obj"], "a.obj", 3, None, {"a.obj": 0}])
def test_a_folder_with_a_damaged_record_of_its_import_is_left_alone(tmp_path, files):
    (tmp_path / "a.obj").write_text("v 0 0 0\n")
    (tmp_path / RECORD).write_text(json.dumps({"files": files}))
    assert "a.obj" in edited_files(tmp_path)


def test_a_task_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "task.yaml"
    path.write_bytes(b"name: \xff\n")
    for read in (read_task_file, load_task):
        with pytest.raises(ConfigError, match="is not YAML"):
            read(str(path))


# --- Words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        find_policy,
        load_protocol,
        load_task,
        Dataset,
        lambda name: load_evaluation(Path(name)),
        lambda name: load_model(Path(name), "tool"),
        lambda name: read_model(Path(name)),
    ],
)
def test_a_name_longer_than_files_may_have_names_nothing(read):
    with pytest.raises(known_errors()):
        read("x" * 5000)


def test_a_value_that_is_nested_too_deeply_is_text():
    assert key_value("a=" + "[" * 100_000) == ("a", "[" * 100_000)


@pytest.mark.parametrize("host", ["", "nonsense", "1.2.3.4"])
def test_meshcat_listens_where_it_was_told_or_nowhere(host, monkeypatch):
    import psutil

    def listeners() -> int:
        connections = psutil.Process(os.getpid()).net_connections("inet")
        return sum(each.status == psutil.CONN_LISTEN for each in connections)

    before = listeners()
    monkeypatch.setenv(MESHCAT_HOST, host)
    with pytest.raises(ConfigError, match=MESHCAT_HOST):
        open_meshcat()
    assert listeners() == before
