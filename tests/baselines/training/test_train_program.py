"""`python -m fleet_tools.baselines.train` goes on after kill -9, and refuses what it cannot do."""

import json
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from conftest import ROOT, run_python
from safetensors.torch import load_file
from small_data_sets import Drawn, hammer_header, write
from training_cases import LAYOUT, same, small_data

from fleet_tools.baselines import merge, train
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.record import load

SMALL = ["--policy", "gru", "--set", "body.layers=1", "--set", "body.width=8", "--threads", "1"]


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("program") / "data").episodes[0].folder


def options(data, output, *more):
    return ["--data", str(data), *SMALL, "--batch-size", "8", "--output", str(output), *more]


def same_result(one, other):
    """Whether two trainings came to the same, apart from how long they took."""
    records = [load(folder) for folder in (one, other)]
    metrics = [[each | {"seconds": 0} for each in record.metrics] for record in records]
    return (
        same(records[0].state.weights, records[1].state.weights)
        and same(records[0].state.moments, records[1].state.moments)
        and all(
            (one / name).read_bytes() == (other / name).read_bytes()
            for name in ("last.safetensors", "best.safetensors")
        )
        and metrics[0] == metrics[1]
    )


def test_two_epochs_at_one_go(data, tmp_path, capsys):
    output = tmp_path / "trained"
    assert train.main(options(data, output, "--epochs", "2", "--json", "--quiet")) == 0
    summary = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2] and summary["epochs"] == 2
    assert summary["loss"] == lines[-1]["loss"] and summary["samples_per_second"] > 0
    lowest = min(lines, key=lambda line: line["validation_loss"])
    assert summary["best_validation_loss"] == lowest["validation_loss"]
    config = json.loads((output / "config.json").read_text())
    assert config["training"]["epochs"] == 2 and config["training"]["learning_rate"] == 1e-3
    assert config["blueprint"]["config"]["body"] == {"type": "gru", "layers": 1, "width": 8}
    weights = load(output).state.weights
    assert same(dict(load_checkpoint(output / "last.safetensors").weights), weights)
    assert set(load_checkpoint(output / "best.safetensors").blueprint.observation) == set(LAYOUT)
    before = {path: path.read_bytes() for path in output.iterdir()}
    assert train.main(options(data, output, "--epochs", "2")) == 0  # there is nothing left to do
    assert {path: path.read_bytes() for path in output.iterdir()} == before
    shown = capsys.readouterr()
    assert "2 epochs over" in shown.out and "lowest" in shown.out


def test_after_kill_9_the_same_command_comes_to_the_same_bits(data, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    epochs, often = ["--epochs", "16", "--quiet"], ["--save-every", "0.001"]
    assert train.main(options(data, whole, *epochs)) == 0
    program = [sys.executable, "-m", "fleet_tools.baselines.train"]
    command = [*program, *options(data, killed, *epochs, *often)]
    kills = []
    while len(kills) < 2:
        process = subprocess.Popen(command, cwd=ROOT)
        until = 2 + 4 * len(kills)
        while process.poll() is None and _epochs(killed) < until:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        kills.append(process.wait())
    assert kills == [-signal.SIGKILL] * 2
    assert 2 <= load(killed).state.epoch < 16
    assert train.main(options(data, killed, *epochs)) == 0
    assert same_result(whole, killed)
    assert {path.name for path in killed.iterdir()} == {path.name for path in whole.iterdir()}


def _epochs(folder):
    try:
        return len((folder / "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0


def test_ctrl_c_keeps_what_is_done(data, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    epochs = ["--epochs", "20", "--quiet", "--validation-share", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_tools.baselines.train",
         *options(data, stopped, *epochs, "--save-every", "0.001")],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and _epochs(stopped) < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "The same command goes on from here" in errors
    assert load(stopped).state.epoch < 20
    for folder in (whole, stopped):
        assert train.main(options(data, folder, *epochs)) == 0
    assert same(load(whole).state.weights, load(stopped).state.weights)
    assert not (whole / "best.safetensors").exists()  # nothing says which is


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--policy", "elmn"], "There is no policy 'elmn'; did you mean 'elman'"),
        (["--policy", "pointnet_elman"], "there is no cloud to encode"),
        (["--policy", "absent.json"], "absent.json is no policy as JSON"),
        (["--set", "body.wdth=8"], "There is no key 'wdth'; did you mean 'width'"),
        (["--set", "body.width"], "'body.width' is no KEY=VALUE of the policy"),
        (["--set", "clouds.unit_m=1"], "'clouds.unit_m=1' is no KEY=VALUE of the policy"),
        (["--set", "body.width=0"], "body.gru.width"),
        (["--observations", "joint_positions"], "did you mean 'joint_position'"),
        (["--data", "absent"], "absent"),
        (["--validation-share", "0.99"], "none is left to learn from"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    data, tmp_path, capsys, changes, message
):
    output = tmp_path / "refused"
    assert train.main([*options(data, output), *changes]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(data, tmp_path, capsys):
    assert train.main(options(data, tmp_path / "out", "--device", "cuda")) == 2
    assert "PyTorch finds no GPU here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_as_it_is(data, tmp_path, capsys):
    output = tmp_path / "trained"
    assert train.main(options(data, output, "--epochs", "1", "--quiet")) == 0
    before = {path: path.read_bytes() for path in output.iterdir()}
    assert train.main(options(data, output, "--epochs", "1", "--seed", "1")) == 2
    assert "holds another training, in which training.seed is 0, not 1" in capsys.readouterr().err
    more = small_data(tmp_path / "more", [3, 3, 3]).episodes[0].folder
    assert train.main(options(more, output, "--epochs", "1")) == 2
    assert "content_digest is" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in output.iterdir()} == before
    assert train.main(options(data, data, "--epochs", "1")) == 2
    assert "is there, and no training" in capsys.readouterr().err
    state = output / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-5])
    assert train.main(options(data, output, "--epochs", "1")) == 2
    assert "state.safetensors cannot be read" in capsys.readouterr().err


def test_a_loss_that_explodes_leaves_the_last_good_policy(data, tmp_path, capsys):
    output = tmp_path / "exploded"
    hot = ["--learning-rate", "1e30", "--epochs", "50", "--quiet"]
    assert train.main(options(data, output, *hot)) == 1
    assert "Give a smaller learning rate than 1e+30" in capsys.readouterr().err
    for tensor in load_file(output / "last.safetensors").values():
        assert torch.isfinite(tensor).all()


def test_a_policy_of_ones_own_is_a_file(data, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"body": {"type": "mlp", "layers": 1, "width": 4}}))
    command = options(data, tmp_path / "out", "--epochs", "1", "--quiet")
    command[command.index("gru")] = str(path)
    assert train.main([*command, "--observations", "joint_position"]) == 0
    blueprint = load_checkpoint(tmp_path / "out" / "last.safetensors").blueprint
    assert list(blueprint.observation) == ["joint_position"]
    assert blueprint.config.body.width == 8  # --set comes on top


def test_policies_of_different_data_that_scale_alike_can_be_merged(data, tmp_path, capsys):
    other = small_data(tmp_path / "other", [4, 6, 5, 7], seed=3).episodes[0].folder
    first, alone, second = (tmp_path / name for name in ("first", "alone", "second"))
    quick = ["--batch-size", "8", "--epochs", "1", "--threads", "1", "--quiet"]
    assert train.main(options(data, first, "--epochs", "1", "--quiet")) == 0
    assert train.main(options(other, alone, "--epochs", "1", "--quiet")) == 0
    like = ["--like", str(first / "last.safetensors"), *quick]
    assert train.main(["--data", str(other), *like, "--output", str(second)]) == 0
    paths = [str(folder / "last.safetensors") for folder in (first, alone, second)]
    merged = str(tmp_path / "merged.safetensors")
    average = ["--method", "naive_average", "--output", merged]
    assert merge.main([paths[0], paths[1], *average]) == 2
    assert "scal" in capsys.readouterr().err
    assert merge.main([paths[0], paths[2], *average]) == 0
    one, other_one = (load_checkpoint(paths[k]) for k in (0, 2))
    assert one.blueprint == other_one.blueprint
    weights = load_checkpoint(merged).weights
    for name, tensor in weights.items():
        assert torch.allclose(tensor, (one.weights[name] + other_one.weights[name]) / 2)
    assert train.main(["--data", str(data), *like, "--set", "body.width=4", "--output", "x"]) == 2
    assert "--set" in capsys.readouterr().err


def test_policies_are_tried_where_their_demonstrations_were(tmp_path):
    data, output = tmp_path / "data", tmp_path / "out"
    write(data, Drawn([5, 4, 6], [True] * 3, 0), hammer_header())
    rollouts = ["--epochs", "3", "--quiet", "--rollouts", "1", "--rollout-every", "2"]
    assert train.main(options(data, output, *rollouts)) == 0
    tried = [each["rollouts"] for each in load(output).metrics]
    assert tried[0] is None
    for each in tried[1:]:  # after every second epoch, and at the end
        assert each["hammer"]["episodes"] == sum(each["hammer"]["outcomes"].values()) == 1


def test_help_needs_no_pytorch():
    code = """
import contextlib, io, json, sys
from fleet_tools.baselines import merge, train
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    train.main(["--help"])
print(json.dumps([name for name in ("torch", "pydrake") if name in sys.modules]))
"""
    assert run_python(code) == []
