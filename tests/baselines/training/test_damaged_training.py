"""A damaged training run is refused with a typed error, or goes on to the same bits."""

import json
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.damaged_runs import (
    damaged_metadata,
    damaged_state,
    damaged_tensors,
    with_digest,
    without_digest,
    write_files,
)
from support.folders import contents
from support.policy_cases import BODIES
from support.training_cases import cloned, equal, small_data, train_options

from fleet_tools.baselines import train
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import batches_of
from fleet_tools.baselines.training.loop import train as train_epochs
from fleet_tools.baselines.training.record import TRAINING_RUN, TrainingWriter, expected_moments
from fleet_tools.baselines.training.state import TrainingError, TrainingProgress
from fleet_tools.storage.locked_folder import AppendLog

EPOCHS = ["--epochs", "4", "--quiet"]


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_data(tmp_path_factory.mktemp("damaged") / "data").episodes[0].folder


@pytest.fixture(scope="module", name="stopped")
def _stopped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that was stopped after the first batch of its third epoch."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    real = train_epochs

    def stop_in_third_epoch(*arguments, after_batch, **options):
        stop = arguments[3].epoch == 2
        return real(*arguments, after_batch=(lambda _: False) if stop else after_batch, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleet_tools.baselines.training.run.train", stop_in_third_epoch)
        assert train.main(train_options(data, folder, *EPOCHS)) == 130
    return contents(folder)


@pytest.fixture(scope="module", name="read")
def _read(
    data: Path, stopped: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[bytes], TrainingProgress]:
    """A function that resumes the run from another state."""
    from fleet_tools.baselines.training.demonstrations import split
    from fleet_tools.dataset.samples import Samples

    folder = tmp_path_factory.mktemp("read") / "run"
    write_files(folder, stopped)
    spec = TRAINING_RUN.read_document(folder)
    training, _ = split(Samples(data), spec.validation_fraction, spec.training.seed)
    trajectories = Trajectories(training, spec.blueprint)

    def read(state: bytes) -> TrainingProgress:
        (folder / "state.safetensors").write_bytes(state)
        with TrainingWriter(folder, spec) as writer:
            return writer.load(trajectories)

    return read


def test_no_damage_of_the_state_is_taken_as_it_is(
    stopped: dict[str, bytes], read: Callable[[bytes], TrainingProgress]
):
    whole, tried, refused = read(stopped["state.safetensors"]), 0, 0
    for what, state in damaged_state(stopped["state.safetensors"]):
        if state is None:
            continue
        tried += 1
        try:
            assert equal(read(state), whole), what
        except TrainingError as error:
            refused += 1
            assert "--restart" in str(error), what
    assert tried > 250 and refused > 0.8 * tried


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_behind_a_forged_digest_names_shapes_and_counts_are_checked(
    stopped: dict[str, bytes],
    read: Callable[[bytes], TrainingProgress],
    tmp_path: Path,
    every: int,
):
    """Wrong losses and finite weights are taken there."""
    state = stopped["state.safetensors"]
    bare, whole = without_digest(state), read(state)
    with pytest.raises(TrainingError, match="its digest does not match its content"):
        read(bare)
    unknowable = ("nudged", "negative", ".seconds", "squares", "loss")
    damages = chain(damaged_tensors(bare), damaged_metadata(bare))
    for what, content in islice(damages, 0, None, every):
        assert content is not None
        try:
            taken = read(with_digest(content, tmp_path / "forged"))
        except TrainingError:
            continue
        assert equal(taken, whole) or any(each in what for each in unknowable), what


def test_counts_are_those_that_training_makes(tmp_path: Path):
    samples = small_data(tmp_path / "data")
    for body in BODIES:
        blueprint, trajectories, state = cloned(samples, body)
        config = TrainingConfig(epochs=3, batch_size=8)
        state = train_epochs(blueprint, trajectories, config, state, epochs=2)
        moments = expected_moments(blueprint.create())
        assert state.moments.keys() == moments.keys(), body
        batches = [batches_of(trajectories, config, epoch) for epoch in range(2)]
        assert state.moments["head.bias/step"] == sum(map(len, batches)), body
        assert state.steps == sum(map(trajectories.imitated_steps, batches[1])), body


@pytest.mark.parametrize("name", ["state.safetensors", "config.json"])
def test_a_lost_file_is_named_and_restart_keeps_the_others(
    data: Path,
    stopped: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
):
    output = tmp_path / "run"
    rest = {each: content for each, content in stopped.items() if each != name}
    write_files(output, rest)
    options = train_options(data, output, *EPOCHS)
    assert train.main(options) == 2
    assert contents(output) == rest
    shown = capsys.readouterr().err
    assert "state.safetensors is missing" in shown or "is not empty and is not" in shown
    assert train.main([*options, "--restart"]) == 0
    assert "run-former-1" in capsys.readouterr().err
    assert contents(tmp_path / "run-former-1") == rest
    assert train.main([*options, "--restart"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run-former-1", "run-former-2"}
    assert len((output / "metrics.jsonl").read_bytes().splitlines()) == 4


def test_restart_touches_no_other_folder_and_no_run_in_progress(
    data: Path, stopped: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("Years of work.")
    assert train.main(train_options(data, tmp_path / "mine", *EPOCHS, "--restart")) == 2
    assert "is not a training run" in capsys.readouterr().err
    write_files(tmp_path / "run", stopped)
    log = AppendLog(tmp_path / "run" / "metrics.jsonl")
    assert train.main(train_options(data, tmp_path / "run", *EPOCHS, "--restart")) == 2
    assert "Another process is writing to" in capsys.readouterr().err
    log.close()
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "run"}


def test_another_scaling_is_another_run(
    data: Path, stopped: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """With `--like`, the scaling does not follow from the data."""
    config = json.loads(stopped["config.json"])
    config["blueprint"]["scaling"]["mean"]["joint_position"][0] += 1
    write_files(tmp_path, stopped | {"config.json": json.dumps(config).encode()})
    assert train.main(train_options(data, tmp_path, *EPOCHS)) == 2
    assert "the hash of its scaling" in capsys.readouterr().err
