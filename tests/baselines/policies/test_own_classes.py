"""Bodies and encoders of a user's own, named as module:class: learned, merged, and not trusted."""

import json
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from support.policy_cases import ACTION, STATE
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same, small_data, train_options

from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.check import check
from fleet_tools.baselines import train
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import (
    Checkpoint,
    CheckpointError,
    env_kwargs_of,
    is_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from fleet_tools.baselines.policies.config import PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.part_configs import OwnClassConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import train as learn
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.utils.imports import TRUSTED_MODULES, is_trusted, trust

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
        ("support.own_parts:GatedBody", {"width": -1}, ConfigError, "cannot be made"),
        ("support.own_parts:WithoutWidth", {}, ConfigError, "the width None"),
        ("support.own_parts:never_called", {}, ConfigError, "no class of torch modules"),
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
