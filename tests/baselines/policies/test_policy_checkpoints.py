"""Checkpoints: what is stored is read, damage is refused, also with classes of a user's own."""

import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from support.policy_cases import ACTION, BLUEPRINTS, BODIES, STATE, made
from support.processes import run_python
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same, small_data, train_options

from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.check import check
from fleet_tools.baselines import train
from fleet_tools.baselines.model_files import read_model
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import (
    Checkpoint,
    CheckpointError,
    env_kwargs_of,
    is_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from fleet_tools.baselines.policies.config import ARCHITECTURES, PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.part_configs import OwnClassConfig, PointNetConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import train as learn
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.utils.imports import TRUSTED_MODULES, is_trusted, trust

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
    with pytest.raises(CheckpointError, match="it holds weights, but not the blueprint"):
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
        with pytest.raises(LayoutError, match=r"cannot read 'other' \(float32 \(7,\)\)"):
            Blueprint.of(mlp, STATE | {"other": other}, ACTION)
    with pytest.raises(LayoutError, match="has no entries"):
        Blueprint.of(mlp, {}, ACTION)
    with pytest.raises(ValueError, match="Did you mean 'joint_position'"):
        Blueprint.of(PolicyConfig(reads=("joint_positions",)), STATE, ACTION)


def test_the_order_of_entries_does_not_depend_on_how_they_are_given():
    backwards = dict(reversed(STATE.items()))
    config = PolicyConfig(body=BODIES["mlp"])
    assert Blueprint.of(config, backwards, ACTION).to_json() == BLUEPRINTS["mlp on state"].to_json()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    with pytest.raises(CheckpointError, match="it holds weights, but not the blueprint"):
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
        ({"config": {"reads": ["joint_position"]}}, "the config must read exactly"),
        ({"observation": {}}, "has no entries"),
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


BODY = OwnClassConfig(name="support.own_parts:GatedBody", arguments={"width": 7})
ENCODER = OwnClassConfig(name="support.own_parts:MeanOfPoints", arguments={"width": 5})


@pytest.fixture(name="trusted")
def _trusted(monkeypatch):
    monkeypatch.setenv(TRUSTED_MODULES, "support.own_parts")


@pytest.fixture(autouse=True)
def _untrusted(monkeypatch):
    """What a test trusts ends with it."""
    monkeypatch.setenv(TRUSTED_MODULES, "")


def test_own_classes_learn_are_stored_and_merge_by_a_derived_table(tmp_path, trusted):
    layout = {"point_cloud": ((8, 4), "float32"), "joint_position": ((7,), "float32")}
    write(tmp_path / "data", Drawn([5, 1, 7, 4], [True] * 4, 0), a_header(layout))
    samples = Samples(tmp_path / "data")
    blueprint = blueprint_of(PolicyConfig(body=BODY, clouds=ENCODER), samples)
    trajectories = Trajectories(samples, blueprint)
    states = []
    for seed in range(3):
        first = TrainingState.initial(blueprint.create(seed).state_dict())
        state = learn(
            blueprint, trajectories, TrainingConfig(batch_size=8, seed=seed), first, epochs=2
        )
        path = tmp_path / f"{seed}.safetensors"
        save_checkpoint(path, Checkpoint(blueprint, state.weights))
        read = load_checkpoint(path)
        assert read.blueprint == blueprint and same(read.weights, state.weights)
        assert not same(read.weights, first.weights)
        states.append(dict(read.weights))

    network = blueprint.create().eval()
    assert isinstance(network, PolicyNetwork)
    symmetry = blueprint.symmetry()
    assert network.symmetry() == symmetry
    example = (blueprint.example(),)
    assert not check(symmetry, network, example, output=lambda out: out[0]).cautions
    sizes = symmetry.group(states[0]).sizes
    assert sorted(sizes.values()) == [
        (5,),
        (7,),
        (7,),
        (9,),
    ]  # the encoder's two layers, the body's two

    merged = merge("git_rebasin", MergeProblem(symmetry, states)).state
    twin = {name: each.numpy() for name, each in states[0].items()}
    generator = np.random.default_rng(0)
    element = {name: generator.permutation(size) for name, (size,) in sizes.items()}
    permuted = symmetry.apply(element, states[0])
    again = merge("git_rebasin", MergeProblem(symmetry, [states[0], permuted])).state
    for name, each in again.items():
        np.testing.assert_allclose(each, twin[name], atol=1e-6)
    save_checkpoint(tmp_path / "merged.safetensors", Checkpoint(blueprint, merged))
    policy = NetworkPolicy(load_checkpoint(tmp_path / "merged.safetensors"))
    observation = {name: np.ones(shape, np.float32) for name, (shape, _) in layout.items()}
    assert not np.array_equal(policy.act(observation), policy.act(observation))  # it remembers


def test_a_strangers_checkpoint_runs_no_code(tmp_path, monkeypatch):
    """Not before its module is trusted, and not for what is read without weights."""
    folder = tmp_path / "modules"
    folder.mkdir()
    source = "from support.own_parts import GatedBody\nopen({!r}, 'w').close()\n"
    (folder / "strangers.py").write_text(source.format(str(tmp_path / "was_run")))
    monkeypatch.syspath_prepend(folder)
    config = PolicyConfig(body=OwnClassConfig(name="strangers:GatedBody"))
    blueprint = Blueprint.of(config, STATE, ACTION)
    path = tmp_path / "policy.safetensors"
    with monkeypatch.context() as patch:
        patch.setenv(TRUSTED_MODULES, "strangers")
        save_checkpoint(path, Checkpoint(blueprint, blueprint.create().state_dict()))
        load_checkpoint(path)
    sys.modules.pop("strangers")
    (tmp_path / "was_run").unlink()

    assert is_checkpoint(path) and env_kwargs_of(path) == {"obs_mode": "state"}
    for run in (lambda: load_checkpoint(path), blueprint.create, blueprint.create_empty):
        with pytest.raises((CheckpointError, ConfigError), match=f"{TRUSTED_MODULES}=strangers"):
            run()
    assert "strangers" not in sys.modules and not (tmp_path / "was_run").exists()


def test_naming_a_class_on_the_command_line_trusts_it_and_no_other(tmp_path):
    """In a file of a config as well, as with task files."""
    name = "support.own_parts:GatedBody"
    assert not is_trusted(name)
    config = read_policy_config(name, [("body.arguments.width", 9), ("body.memory", False)])
    assert config.body == OwnClassConfig(name=name, arguments={"width": 9}, memory=False)
    assert is_trusted(name) and not is_trusted("support.own_parts_of_others:GatedBody")
    for text, suffix in (
        (json.dumps({"body": BODY.model_dump(), "clouds": ENCODER.model_dump()}), "json"),
        (
            "body: {type: class, name: 'support.own_parts:GatedBody', arguments: {width: 7}}\n"
            "clouds: {type: class, name: 'support.own_parts:MeanOfPoints', arguments: {width: 5}}",
            "yaml",
        ),
    ):
        path = tmp_path / f"policy.{suffix}"
        path.write_text(text)
        assert read_policy_config(str(path)) == PolicyConfig(body=BODY, clouds=ENCODER)


def test_the_program_trains_a_class_that_it_names(tmp_path, capsys):
    data = small_data(tmp_path / "data")
    options = train_options(tmp_path / "data", tmp_path / "run", "--epochs", "2")
    options[options.index("gru")] = "support.own_parts:GatedBody"
    del options[options.index("--set") : options.index("--threads")]
    assert train.main([*options, "--set", "body.arguments.width=4"]) == 0, capsys.readouterr().err
    policy = load_checkpoint(tmp_path / "run" / "last.safetensors")
    (part,) = policy.blueprint.config.own_classes
    assert part.name == "support.own_parts:GatedBody"
    assert policy.weights["body.mixing.weight"].shape == (4, 4) and data is not None


@pytest.mark.parametrize(
    ("name", "arguments", "error", "said"),
    [
        ("support.own_parts:Absent", {}, UnknownNameError, "GatedBody"),
        ("support.absent:Body", {}, ConfigError, "cannot be imported"),
        ("support.own_parts:GatedBody", {"depth": 3}, ConfigError, "depth"),
        ("support.own_parts:GatedBody", {"width": -1}, ConfigError, "cannot be created"),
        ("support.own_parts:WithoutWidth", {}, ConfigError, "the width None"),
        ("support.own_parts:never_called", {}, ConfigError, "not a class of torch modules"),
    ],
)
def test_what_is_no_body_is_refused_with_what_it_is(name, arguments, error, said):
    trust(name)
    config = PolicyConfig(body=OwnClassConfig(name=name, arguments=arguments))
    with pytest.raises(error, match=said):
        Blueprint.of(config, STATE, ACTION).create()


@pytest.mark.parametrize(
    "word", [":f", "a:", "a:b:c", "a b:c", "../a:b", "a,os:b", "\0:b", "\udc80:b"]
)
def test_what_names_no_class_is_refused_and_trusts_nothing(word):
    with pytest.raises(ConfigError, match="name"):
        read_policy_config(word)
    assert not is_trusted("os:system")
