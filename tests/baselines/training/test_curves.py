"""Curves for TensorBoard hold what the log of a run holds, once, however often it was resumed."""

import json
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tensorboard")

from support.fleet_cases import arguments, rounds_of, write_data
from support.training_cases import small_data, train_options

from fleet_tools.baselines import fleet, train


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


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("curves") / "data").episodes[0].folder


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


def test_another_file_beside_the_curves_is_kept(data, tmp_path):
    output = tmp_path / "run"
    assert train.main(train_options(data, output, "--epochs", "1", "--quiet", "--tensorboard")) == 0
    (output / "tensorboard" / "notes.txt").write_text("mine")
    assert train.main(train_options(data, output, "--epochs", "1", "--quiet", "--tensorboard")) == 0
    assert (output / "tensorboard" / "notes.txt").read_text() == "mine"
    assert len(list((output / "tensorboard").glob("events*"))) == 1


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("tensorboard", ["--tensorboard"]),
        ("wandb", ["--wandb", "project"]),
    ],
)
def test_an_absent_library_is_refused_before_anything_is_written(
    data, tmp_path, capsys, monkeypatch, library, options
):
    monkeypatch.setitem(sys.modules, library, None)
    assert train.main(train_options(data, tmp_path / "run", "--epochs", "1", *options)) == 2
    assert f"[{library}]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_is_trained_is_printed_with_its_defaults(data, tmp_path, capsys):
    assert train.main(train_options(data, tmp_path / "run", "--epochs", "1")) == 0
    shown = capsys.readouterr().err
    assert "gru (layers 1, width 8)" in shown and "constant learning rate 0.001" in shown
    assert "1 epochs, batches of 8" in shown and "for validation" in shown


def test_weights_and_biases_has_each_epoch_once(data, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged: list[tuple[int, set[str]]] = []
    log = wandb.Run.log

    def record(run, values, *, step, **others):
        logged.append((step, set(values)))
        return log(run, values, step=step, **others)

    monkeypatch.setattr(wandb.Run, "log", record)
    options = train_options(data, tmp_path / "run", "--epochs", "2", "--quiet", "--wandb", "trial")
    assert train.main(options) == 0
    names = {"loss/training", "loss/validation", "learning_rate"}
    assert logged == [(1, names), (2, names)]
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))
    own = (tmp_path / "run" / "wandb_id.txt").read_text()
    assert train.main(options) == 0
    assert (tmp_path / "run" / "wandb_id.txt").read_text() == own
    assert train.main([*options, "--restart"]) == 0  # another run, whose curves begin anew
    assert (tmp_path / "run" / "wandb_id.txt").read_text() != own
