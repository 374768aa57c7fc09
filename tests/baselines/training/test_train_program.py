"""The program `train`: its options and errors, resumption and curves."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
import yaml
from safetensors.torch import load_file
from support.fleet_cases import arguments, rounds_of, write_data
from support.policy_cases import BODIES, DENOISING
from support.processes import ROOT, run_python
from support.small_checkpoints import untrained
from support.small_datasets import Drawn, write
from support.training_cases import LAYOUT, same, small_data, train_options

from fleet_tools.baselines import fleet, merge, train
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.demonstrations import blueprint_of
from fleet_tools.baselines.training.record import load_progress
from fleet_tools.baselines.training.rollouts import make_rollouts
from fleet_tools.config.tasks import task_path
from fleet_tools.dataset.header import Header, describe
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import PolicyError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.run import describe as describe_evaluation
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.splits import VALIDATION


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("program") / "data").episodes[0].folder


def short_header(path: Path) -> Header:
    """Returns the header of a dataset of a task whose episodes are short.

    Args:
        path: Path of the task's file, which is written.
    """
    task = yaml.safe_load(task_path("hammer").read_text()) | {
        "name": "short_hammer",
        "time_limit_s": 0.5,
    }
    path.write_text(yaml.safe_dump(task))
    spec = EnvSpec.of(str(path))
    return describe(spec.make(), spec, policy="expert", seed=7, keep_failures=False)


def test_two_epochs_without_interruption(data, tmp_path, capsys):
    output = tmp_path / "trained"
    assert train.main(train_options(data, output, "--epochs", "2", "--json", "--quiet")) == 0
    summary = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2] and summary["epochs"] == 2
    assert summary["loss"] == lines[-1]["loss"] and summary["samples_per_second"] > 0
    lowest = min(lines, key=lambda line: line["validation_loss"])
    assert summary["best_validation_loss"] == lowest["validation_loss"]
    config = json.loads((output / "config.json").read_text())
    assert config["training"]["epochs"] == 2 and config["training"]["learning_rate"] == 1e-3
    assert config["threads"] == 1  # whatever the machine has, so that bits do not depend on it
    assert config["blueprint"]["config"]["body"] == {"type": "gru", "layers": 1, "width": 8}
    weights = load_progress(output).state.weights
    assert same(dict(load_checkpoint(output / "last.safetensors").weights), weights)
    assert set(load_checkpoint(output / "best.safetensors").blueprint.observation) == set(LAYOUT)
    before = {path: path.read_bytes() for path in output.iterdir()}
    assert train.main(train_options(data, output, "--epochs", "2")) == 0  # nothing is left to do
    assert {path: path.read_bytes() for path in output.iterdir()} == before
    shown = capsys.readouterr()
    assert "2 epochs over" in shown.out and "lowest" in shown.out


def test_without_validation_there_is_no_best_policy(data, tmp_path):
    output = tmp_path / "run"
    more = ["--epochs", "2", "--quiet", "--validation-fraction", "0"]
    assert train.main(train_options(data, output, *more)) == 0
    assert [epoch.validation_loss for epoch in load_progress(output).metrics] == [None, None]
    assert (output / "last.safetensors").exists()
    assert not (output / "best.safetensors").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--architecture", "elmn"], "Unknown architecture: 'elmn'. Did you mean 'elman'"),
        (["--architecture", "pointnet_elman"], "there is no cloud to encode"),
        (["--architecture", "absent.json"], "absent.json is not the JSON config of a policy"),
        (["--set", "body.wdth=8"], "Unknown key: 'wdth'. Did you mean 'width'"),
        (["--set", "clouds.unit_m=1"], "The architecture gru has no key 'clouds.unit_m'"),
        (["--set", "body.width=0"], "body.gru.width"),
        (["--observations", "joint_positions"], "Did you mean 'joint_position'"),
        (["--dataset", "absent"], "absent"),
        (["--validation-fraction", "0.99"], "none is left for training"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    data, tmp_path, capsys, changes, message
):
    output = tmp_path / "refused"
    assert train.main([*train_options(data, output), *changes]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--set", "body.width"], "expected KEY=VALUE; given: body.width"),
        (["--like", "other.safetensors"], "give either --architecture or --like"),
        (["--validation-fraction", "1"], "--validation-fraction"),
        (["--epochs", "0"], "--epochs"),
        (["--dataset"], "--dataset"),
        (["--choose-by", "rollouts"], "needs --rollouts"),
    ],
)
def test_contradictory_options_are_refused_at_once(data, tmp_path, capsys, changes, message):
    with pytest.raises(SystemExit) as exit_:
        train.main([*train_options(data, tmp_path / "refused"), *changes])
    assert exit_.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("\u2502", " ").split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(data, tmp_path, capsys):
    assert train.main(train_options(data, tmp_path / "out", "--device", "cuda")) == 2
    assert "PyTorch finds no GPU here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_not_changed(data, tmp_path, capsys):
    output = tmp_path / "trained"
    assert train.main(train_options(data, output, "--epochs", "1", "--quiet")) == 0
    before = {path: path.read_bytes() for path in output.iterdir()}
    assert train.main(train_options(data, output, "--epochs", "1", "--seed", "1")) == 2
    assert "with other options: training.seed is 0, not 1" in capsys.readouterr().err
    more = small_data(tmp_path / "more", [3, 3, 3]).episodes[0].folder
    assert train.main(train_options(more, output, "--epochs", "1")) == 2
    assert "content_digest is" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in output.iterdir()} == before
    assert train.main(train_options(data, data, "--epochs", "1")) == 2
    assert "is not empty and is not a training run" in capsys.readouterr().err
    state = output / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-5])
    assert train.main(train_options(data, output, "--epochs", "1")) == 2
    assert "state.safetensors is not a safetensors file" in capsys.readouterr().err


def test_a_divergence_keeps_the_last_good_policy(data, tmp_path, capsys):
    output = tmp_path / "exploded"
    hot = ["--learning-rate", "1e30", "--epochs", "50", "--quiet"]
    assert train.main(train_options(data, output, *hot)) == 1
    assert "Give a smaller learning rate than 1e+30" in capsys.readouterr().err
    for tensor in load_file(output / "last.safetensors").values():
        assert torch.isfinite(tensor).all()


def test_policies_of_different_data_with_one_scaling_can_be_merged(data, tmp_path, capsys):
    other = small_data(tmp_path / "other", [4, 6, 5, 7], seed=3).episodes[0].folder
    first, alone, second = (tmp_path / name for name in ("first", "alone", "second"))
    quick = ["--batch-size", "8", "--epochs", "1", "--threads", "1", "--quiet"]
    assert train.main(train_options(data, first, "--epochs", "1", "--quiet")) == 0
    assert train.main(train_options(other, alone, "--epochs", "1", "--quiet")) == 0
    like = ["--like", str(first / "last.safetensors"), *quick]
    assert train.main(["--dataset", str(other), *like, "--output", str(second)]) == 0
    paths = [str(folder / "last.safetensors") for folder in (first, alone, second)]
    merged = str(tmp_path / "merged.safetensors")
    average = ["--method", "naive_average", "--output", merged]
    assert merge.main([paths[0], paths[2], *average]) == 0
    one, other_one = (load_checkpoint(paths[k]) for k in (0, 2))
    assert one.blueprint == other_one.blueprint
    weights = load_checkpoint(merged).weights
    for name, tensor in weights.items():
        assert torch.allclose(tensor, (one.weights[name] + other_one.weights[name]) / 2)
    with pytest.raises(SystemExit):
        train.main(["--dataset", str(data), *like, "--set", "body.width=4", "--output", "x"])
    assert "--set" in capsys.readouterr().err


def test_policies_are_evaluated_in_the_environments_of_their_demonstrations(tmp_path):
    data, output = tmp_path / "data", tmp_path / "out"
    write(data, Drawn([5, 4, 6], [True] * 3, 0), short_header(tmp_path / "hammer.yaml"))
    rollouts = ["--epochs", "3", "--quiet", "--rollouts", "1", "--rollout-every", "2"]
    assert train.main(train_options(data, output, *rollouts)) == 0
    first, *others = [epoch.rollouts for epoch in load_progress(output).metrics]
    assert first is None
    for rollouts in others:  # after every second epoch, and at the end
        assert rollouts is not None
        assert rollouts.keys() == {"short_hammer"}
        assert rollouts["short_hammer"]["episodes"] == 1
        assert sum(rollouts["short_hammer"]["outcomes"].values()) == 1


def test_evaluations_in_training_draw_the_noise_of_any_rollout(tmp_path, monkeypatch):
    folder, header = tmp_path / "data", short_header(tmp_path / "hammer.yaml")
    write(folder, Drawn([5, 4], [True] * 2, 0), header)
    samples = Samples(folder)
    blueprint = blueprint_of(PolicyConfig(body=BODIES["mlp"], head=DENOISING["flow"]), samples)
    policy, seeds = Checkpoint(blueprint, blueprint.create(0).state_dict()), []
    reset = NetworkPolicy.reset

    def watched(self, seed=0):
        seeds.append(seed)
        reset(self, seed)

    run = make_rollouts([header], policy)
    network, env = NetworkPolicy(policy), header.env_spec.make()
    monkeypatch.setattr(NetworkPolicy, "reset", watched)
    for scene in VALIDATION[:2]:
        run(("short_hammer", scene))
        rollout(env, network, seed=scene)
    env.close()
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def test_without_pytorch_the_installation_is_named(data, tmp_path):
    code = """
import contextlib, importlib.util, io, json, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "torch" else find(name)
from fleet_tools.baselines import train
with contextlib.redirect_stderr(io.StringIO()) as errors:
    code = train.main(sys.argv[1:])
print(json.dumps([code, errors.getvalue()]))
"""
    code, errors = run_python(code, *train_options(data, tmp_path / "out"))
    assert code == 2 and "torch is needed to learn policies and merge them. Install" in errors
    assert not (tmp_path / "out").exists()


def same_result(one: Path, other: Path) -> bool:
    """Whether two runs have the same result, except for wall times."""
    runs = [load_progress(folder) for folder in (one, other)]
    metrics = [[each.model_copy(update={"seconds": 0}) for each in run.metrics] for run in runs]
    return (
        same(runs[0].state.weights, runs[1].state.weights)
        and same(runs[0].state.moments, runs[1].state.moments)
        and all(
            (one / name).read_bytes() == (other / name).read_bytes()
            for name in ("last.safetensors", "best.safetensors")
        )
        and metrics[0] == metrics[1]
    )


@pytest.mark.slow  # of what is left then: test_damaged_training.py
def test_after_kill_9_and_ctrl_c_the_same_command_ends_with_the_same_bits(data, tmp_path, capsys):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    epochs = ["--epochs", "30", "--quiet"]
    assert train.main(train_options(data, whole, *epochs)) == 0
    options = train_options(data, stopped, *epochs, "--save-every", "0.001")
    program = [sys.executable, "-m", "fleet_tools.baselines.train"]
    process = subprocess.Popen([*program, *options], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and _epochs(stopped) < 2:
        time.sleep(0.002)
    process.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    assert 2 <= load_progress(stopped).state.epoch < 30

    def interrupt() -> None:
        while _epochs(stopped) < 6:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as threads:
        interrupted = threads.submit(interrupt)
        assert train.main(options) == 130
        interrupted.result()
    assert "The same command resumes it" in capsys.readouterr().err
    assert 6 <= load_progress(stopped).state.epoch < 30
    assert train.main(train_options(data, stopped, *epochs)) == 0
    assert same_result(whole, stopped)
    assert {path.name for path in stopped.iterdir()} == {path.name for path in whole.iterdir()}


def _epochs(folder: Path) -> int:
    try:
        return len((folder / "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0


needs_tensorboard = pytest.mark.skipif(not find_spec("tensorboard"), reason="its curves")


def curves_of(folder: Path) -> dict[str, dict[int, float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of protobuf
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder))
        events.Reload()
    points = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    for each in points.values():
        assert len({point.step for point in each}) == len(each)
    return {name: {point.step: point.value for point in each} for name, each in points.items()}


@needs_tensorboard
def test_curves_follow_the_log_also_of_epochs_before_they_were_asked_for(data, tmp_path):
    output = tmp_path / "run"
    epochs = ["--epochs", "4", "--quiet"]

    def stop_after_two(progress):
        if progress.state.epoch == 2:
            raise OSError(28, "no space left on device")

    with pytest.MonkeyPatch.context() as patched:
        from fleet_tools.baselines.training import reports as epoch_bar

        patched.setattr(
            epoch_bar.EpochBar, "update", lambda self, progress: stop_after_two(progress)
        )
        assert train.main(train_options(data, output, *epochs)) == 1
    assert not (output / "tensorboard").exists()
    for _ in range(2):  # the second time, nothing is left to do
        assert train.main(train_options(data, output, *epochs, "--tensorboard")) == 0
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
        curves = curves_of(output / "tensorboard")
        assert curves.keys() == {"loss/training", "loss/validation", "learning_rate"}
        for name, key in (("loss/training", "loss"), ("loss/validation", "validation_loss")):
            expected = {line["epoch"]: pytest.approx(line[key], rel=1e-6) for line in lines}
            assert curves[name] == expected


@needs_tensorboard
def test_a_fleet_has_a_point_for_each_round(tmp_path):
    output = tmp_path / "fleet"
    options = arguments(write_data(tmp_path / "data"), output)
    assert fleet.main(options) == 0
    assert fleet.main([*options, "--tensorboard"]) == 0
    rounds, curves = rounds_of(output), curves_of(output / "tensorboard")
    assert curves.keys() == {"loss/held_out", "bytes", "moved_fraction"}
    for name, key in (("loss/held_out", "loss"), ("bytes", "bytes_so_far")):
        assert curves[name] == {
            each["round"]: pytest.approx(each[key], rel=1e-6) for each in rounds
        }


@needs_tensorboard
def test_another_file_beside_the_curves_is_kept(data, tmp_path):
    output = tmp_path / "run"
    assert train.main(train_options(data, output, "--epochs", "1", "--quiet", "--tensorboard")) == 0
    (output / "tensorboard" / "notes.txt").write_text("mine")
    assert train.main(train_options(data, output, "--epochs", "1", "--quiet", "--tensorboard")) == 0
    assert (output / "tensorboard" / "notes.txt").read_text() == "mine"
    assert len(list((output / "tensorboard").glob("events*"))) == 1


def test_an_absent_library_is_refused_before_anything_is_written(
    data, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    options = train_options(data, tmp_path / "run", "--epochs", "1", "--tensorboard")
    assert train.main(options) == 2
    assert "[tensorboard]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_is_trained_is_printed_with_its_defaults(data, tmp_path, capsys):
    assert train.main(train_options(data, tmp_path / "run", "--epochs", "1")) == 0
    shown = capsys.readouterr().err
    assert "gru (layers 1, width 8)" in shown and "constant learning rate 0.001" in shown
    assert "1 epochs, batches of 8" in shown and "for validation" in shown


def test_a_learner_that_the_expert_helps_cannot_be_evaluated(tmp_path):
    checkpoint = untrained(tmp_path / "policy.safetensors")
    with pytest.raises(PolicyError, match="shares the control"):
        describe_evaluation(EvaluationConfig(policy=f"dagger:{checkpoint}", tool="hammer"))
