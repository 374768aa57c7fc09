"""A checkpoint is a complete policy that this version can run, or is refused."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from support.policy_cases import ACTION, BLUEPRINTS, BODIES, STATE, made
from support.processes import run_python

from fleet_tools.baselines.model_files import read_model
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import (
    Checkpoint,
    CheckpointError,
    env_kwargs_of,
    load_checkpoint,
    require_weights,
    save_checkpoint,
)
from fleet_tools.baselines.policies.config import ARCHITECTURES, PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.part_configs import PointNetConfig
from fleet_tools.envs.array_spec import ArraySpec

EVERY = pytest.mark.parametrize("name", BLUEPRINTS)
KEY = "fleet_tools_policy"


def checkpoint(name: str = "mlp on state") -> Checkpoint:
    return Checkpoint(BLUEPRINTS[name], made(name).state_dict())


@pytest.fixture(name="path")
def _path(tmp_path):
    save_checkpoint(tmp_path / "policy.safetensors", checkpoint())
    return tmp_path / "policy.safetensors"


def rewritten(path: Path, change: Callable[[dict[str, str]], dict[str, str] | None]) -> Path:
    """Rewrites a file with other metadata."""
    with safe_open(path, "pt") as opened:
        file: Any = opened  # the library's stubs have no types
        metadata = file.metadata()
        weights = {name: file.get_tensor(name) for name in made("mlp on state").state_dict()}
    save_file(weights, path, change(metadata))
    return path


def with_json(path: Path, **changes: Any) -> Path:
    """Rewrites a file with other values in its blueprint."""
    return rewritten(path, lambda notes: {KEY: json.dumps(json.loads(notes[KEY]) | changes)})


@EVERY
def test_what_is_stored_comes_back_bit_for_bit(name, tmp_path):
    path, again = tmp_path / "policy.safetensors", tmp_path / "again.safetensors"
    save_checkpoint(path, checkpoint(name))
    stored = load_checkpoint(path)
    assert stored.blueprint == BLUEPRINTS[name]
    assert stored.weights.keys() == made(name).state_dict().keys()
    for key, tensor in made(name).state_dict().items():
        assert stored.weights[key].dtype == tensor.dtype
        assert stored.weights[key].numpy().tobytes() == tensor.numpy().tobytes()
    save_checkpoint(again, stored)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == [again, path]


def test_environment_of_a_policy_is_read_without_pytorch(path):
    code = """
import json, sys
from fleet_tools.baselines.policies.checkpoint import env_kwargs_of
print(json.dumps([env_kwargs_of(sys.argv[1]), "torch" in sys.modules]))
"""
    assert run_python(code, str(path)) == [{"obs_mode": "state"}, False]
    with pytest.raises(CheckpointError, match="it holds weights without a policy's blueprint"):
        env_kwargs_of(rewritten(path, lambda _: None))


def test_another_layout_of_data_is_refused_before_there_is_a_network():
    mlp = PolicyConfig(body=BODIES["mlp"])
    cloud = BLUEPRINTS["mlp on clouds"].observation
    with pytest.raises(LayoutError, match=r"no encoder for point_cloud.*`clouds`"):
        Blueprint.of(mlp, cloud, ACTION)
    with pytest.raises(LayoutError, match="has `clouds`, but there is no cloud"):
        Blueprint.of(PolicyConfig(body=BODIES["mlp"], clouds=PointNetConfig()), STATE, ACTION)
    for kind in ("depth", "rgb", "points"):
        other = STATE["joint_position"].model_copy(update={"kind": kind})
        with pytest.raises(
            LayoutError, match=r"do not read entries like 'other' \(float32 \(7,\)\)"
        ):
            Blueprint.of(mlp, STATE | {"other": other}, ACTION)
    with pytest.raises(LayoutError, match="nothing to read"):
        Blueprint.of(mlp, {}, ACTION)
    with pytest.raises(ValueError, match="Did you mean 'joint_position'"):
        Blueprint.of(PolicyConfig(reads=("joint_positions",)), STATE, ACTION)


def test_the_order_of_entries_does_not_depend_on_how_they_are_given():
    backwards = dict(reversed(STATE.items()))
    config = PolicyConfig(body=BODIES["mlp"])
    assert Blueprint.of(config, backwards, ACTION).to_json() == BLUEPRINTS["mlp on state"].to_json()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(path, part):
    content = path.read_bytes()
    cut = path.with_name("cut.safetensors")
    cut.write_bytes(content[: int(part * len(content))])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors is not a checkpoint"):
        load_checkpoint(cut)


def test_other_files_are_refused_and_no_pickle_is_read(path):
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(path.with_name("absent.safetensors"))
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(path.parent)

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("a pickle was read",)

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(path)
    torch.save(dict(made("mlp on state").state_dict()), path)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(path)


def test_weights_without_a_policy_are_refused(path):
    with pytest.raises(CheckpointError, match="it holds weights without a policy's blueprint"):
        load_checkpoint(rewritten(path, lambda _: None))
    with pytest.raises(CheckpointError, match="not a JSON object"):
        load_checkpoint(rewritten(path, lambda _: {KEY: "[1, 2"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "its version is 2, and this version of Fleet-Tools reads 1"),
        ({"version": None}, "its version is None"),
        ({"colour": "red"}, "Unknown key: 'colour'"),
        ({"notes": 3}, "its notes are not a JSON object"),
        ({"action": None}, "action: "),
        ({"config": {"body": {"type": "mlb"}}}, "config.body"),
        ({"scaling": {"mean": {}, "std": {}}}, "the scaling has the sizes {}"),
        ({"config": {"body": {"layers": 3, "type": "mlp"}}}, "body.layers.2.weight is missing"),
        ({"config": {"body": {"type": "gru"}}}, "body.core.weight_ih_l0 is missing.* more"),
        ({"config": {"reads": ["joint_position"]}}, "the config reads other entries"),
        ({"observation": {}}, "nothing to read"),
    ],
)
def test_a_policy_that_this_version_cannot_run_is_refused(path, changes, message):
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(with_json(path, **changes))


def test_weights_of_another_network_are_never_stored():
    weights = made("mlp on state").state_dict()
    with pytest.raises(CheckpointError, match=r"head.bias is float32 \(3,\), not float32 \(6,\)"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"head.bias": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"head\.bias is float64"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"head.bias": torch.zeros(6).double()})
    with pytest.raises(CheckpointError, match=r"head\.bias holds NaN or infinity"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"head.bias": torch.zeros(6) / 0})
    with pytest.raises(CheckpointError, match=r"tail\.bias does not belong to it"):
        Checkpoint(BLUEPRINTS["mlp on state"], weights | {"tail.bias": torch.zeros(6)})


def test_a_checkpoint_does_not_change_when_training_continues():
    network = BLUEPRINTS["mlp on state"].create()
    taken = Checkpoint(BLUEPRINTS["mlp on state"], network.state_dict())
    with torch.no_grad():
        network.get_parameter("head.bias").add_(1)
    assert torch.equal(taken.weights["head.bias"], made("mlp on state").get_parameter("head.bias"))


def test_a_crash_while_writing_leaves_what_was_there(path, monkeypatch):
    before = path.read_bytes()

    def crash(aside: Path, content: bytes) -> None:
        with aside.open("wb") as file:
            file.write(content[:100])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", crash)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(path, checkpoint())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_merging_program_reads_a_checkpoint_as_a_state_dict(path):
    for name, tensor in read_model(path).items():
        assert torch.equal(tensor, made("mlp on state").state_dict()[name])


CAMERAS = {
    "wrist_rgb": ArraySpec(kind="rgb", shape=(12, 16, 3), dtype="uint8", unit="", frame=None),
    "wrist_depth": ArraySpec(kind="depth", shape=(12, 16), dtype="float32", unit="m", frame=None),
}
CLOUD = {
    "point_cloud": ArraySpec(kind="points", shape=(20, 4), dtype="float32", unit="m", frame="E")
}


@pytest.mark.parametrize("offered", [STATE, STATE | CLOUD, STATE | CAMERAS, CAMERAS, CLOUD])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_misfit_names_options_that_work(architecture, offered):
    try:
        Blueprint.of(read_policy_config(architecture, (), None), offered, ACTION)
    except LayoutError as error:
        found = re.findall(r"`--architecture (\w+)(?: --observations ([\w ]+))?`", str(error))
        assert found
        for name, observations in found:
            assert name.endswith(architecture.rpartition("_")[2])
            reads = observations.split() or None
            Blueprint.of(read_policy_config(name, (), reads), offered, ACTION)
    else:
        assert "wrist_depth" not in offered


def test_a_robot_or_checkpoint_with_negative_variances_is_refused():
    expected = {"norm.running_var": torch.ones(2)}
    with pytest.raises(CheckpointError, match=r"norm\.running_var holds variances below 0"):
        require_weights(expected, {"norm.running_var": torch.tensor([1.0, -1e-9])})
