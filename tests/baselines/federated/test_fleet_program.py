"""`python -m fleet_tools.baselines.fleet` runs a fleet, and refuses what it cannot run."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors.torch import load_file
from support.fleet_cases import (
    PROGRAM,
    ROUNDS,
    arguments,
    plan_of,
    run_rounds,
    same,
    same_result,
)
from support.folders import contents
from support.processes import ROOT, run_python
from support.small_datasets import Drawn, hammer_header, write

from fleet_tools.baselines.federated.record import load_progress
from fleet_tools.baselines.federated.summary import as_text
from fleet_tools.baselines.fleet import main
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.parallel import cluster


def test_the_program_runs_all_rounds_and_reports_them(
    data: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = run_rounds(plan_of(data, **ROUNDS))
    progress = load_progress(whole)
    assert same(progress.weights, expected[-1].weights)
    assert same(load_checkpoint(whole / "merged.safetensors").weights, expected[-1].weights)
    for robot, weights in expected[-1].robot_weights.items():
        assert same(load_file(whole / "robots" / f"{robot}.safetensors"), weights)
    lines = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [each.loss for each in expected]
    report = json.loads((whole / "report.json").read_text())
    traffic = report["traffic"]
    exchanged = traffic["downloaded_bytes"] + traffic["uploaded_bytes"]
    assert exchanged == lines[-1]["bytes_so_far"]
    numbers = 7 + 2 * 3 + 6  # float32 each
    steps = [robot["rounds"] and robot["data_bytes"] / (4 * numbers) for robot in report["robots"]]
    assert steps == [each.steps for each in expected[-1].robots.values()]
    assert report["data_at_home"] == 4 * numbers * sum(steps)
    text = as_text("", report)
    (uploads,) = re.findall(r"uploads to the server (\S+) kB \((\S+) kB a client\)", text)
    assert float(uploads[0]) == pytest.approx(traffic["uploaded_bytes"] / 1e3, abs=0.051)
    assert float(uploads[1]) == pytest.approx(float(uploads[0]) / len(report["robots"]), abs=0.1)
    ratio = traffic["uploaded_bytes"] / report["data_at_home"]
    assert f"the uploads are {ratio:,.0f} times as large" in text
    before = contents(whole)
    shown = [each for each in arguments(data, whole, **ROUNDS) if each != "--quiet"]
    assert main(shown) == 0  # there is nothing left to do
    assert contents(whole) == before
    out = capsys.readouterr().out
    assert (
        "3 robots, naive_average, 8 rounds of 1 epoch\n" in out and "raw data of the clients" in out
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "git_rebasn"}, "Did you mean 'git_rebasin'"),
        ({"options": {"rounds": 2}}, "'rounds'"),
        ({"method": "git_rebasin", "options": {"rounds": "many"}}, "rounds"),
        (
            {"method": "ties", "merge_every": 1},
            "each robot starts from its own; give `initialization: common`",
        ),
        ({"policy": "elmn"}, "Did you mean 'elman'"),
        ({"policy": {"body": {"type": "mlp", "wdth": 3}}}, "Did you mean 'width'"),
        ({"merge_every": 3}, "change one of them"),
        ({"participation": 0}, "participation: "),
        ({"held_out": 0}, "held_out: "),
        ({"held_out": 0.99}, "none is left for training"),
        ({"robots": 50}, "between 1 and 11 robots"),
        ({"split": {"by": "task", "alpha": None}}, "Give fewer robots, or an alpha"),
        ({"data": ["nowhere"]}, "nowhere is not a dataset"),
        ({"epochs": 3}, "Unknown key: 'epochs'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    message: str,
) -> None:
    output = tmp_path / "refused"
    assert main(arguments(data, output, **changes)) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_a_fleet_goes_on_with_the_reader_that_it_began_with(
    data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, output = tmp_path / "reader.safetensors", tmp_path / "fleet"
    given = arguments(data, output, merge_every=None, detector=str(reader))
    assert main(given) == 2  # there is none
    assert "reader.safetensors" in capsys.readouterr().err and not output.exists()
    shutil.copy(whole / "merged.safetensors", reader)
    assert main(given) == 0 and main(given) == 0
    before = contents(output)
    shutil.copy(whole / "robots" / "0.safetensors", reader)  # another file of this name
    assert main(given) == 2
    assert "detector_digest is" in capsys.readouterr().err and contents(output) == before


def test_an_unknown_reference_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments(data, tmp_path / "refused", "--reference", "jont"))
    assert "joint" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()


def test_a_folder_of_something_else_is_left_unchanged(
    data: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(whole)
    assert main(arguments(data, whole, **ROUNDS | {"participation": 0.5})) == 2
    assert "options: participation is 1.0, not 0.5" in capsys.readouterr().err
    assert main(arguments(data, data)) == 2
    assert "is not empty and is not a fleet" in capsys.readouterr().err
    assert contents(whole) == before


def test_numbers_that_diverge_stop_the_fleet_and_every_robot_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for epochs, expected in (
        (1, ["has the loss nan", "a smaller learning rate than 1e+30"]),
        (3, ["every robot was excluded", *(f"robot {robot}: DivergedError" for robot in range(3))]),
    ):
        training = {"epochs": epochs, "learning_rate": 1e30}
        output = tmp_path / str(epochs)
        assert main(arguments(data, output, training=training, merge_every=None)) == 1
        errors = capsys.readouterr().err
        assert all(words in errors for words in expected), errors
        assert not (output / "merged.safetensors").exists()


@pytest.mark.slow
def test_merged_tuned_and_own_policies_are_evaluated_where_the_data_were_collected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = tmp_path / "data", tmp_path / "out"
    write(data, Drawn([5, 4, 6, 3], [True] * 4, 0), hammer_header())
    changes: dict[str, Any] = {"rollouts": 1, "try_robots": True, "fine_tuning": {"epochs": 1}}
    assert main(arguments(data, output, "--json", robots=1, merge_every=4, **changes)) == 0
    report = json.loads(capsys.readouterr().out)
    for each in (report, report["fine_tuned"], *report["robots"], *report["curve"]):
        successes = each["rollouts"]["hammer"]
        assert successes["episodes"] == sum(successes["outcomes"].values()) == 1
    assert [each["round"] for each in report["curve"]] == [1]
    tuned = load_checkpoint(output / "fine_tuned.safetensors")
    assert not same(tuned.weights, load_progress(output).weights)


@pytest.mark.slow
def test_on_a_running_cluster(whole: Path, data: Path, tmp_path: Path) -> None:
    with cluster.connected(2, None) as ray:
        address = ray.get_runtime_context().gcs_address
        options = ["--ray-address", address, "--workers", "2", "--json"]
        given = arguments(data, tmp_path / "out", *options, **ROUNDS)
        finished = subprocess.run([*PROGRAM, *given], cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["rounds"] == 8
    assert same_result(whole, tmp_path / "out")


def test_a_reference_is_one_option_away(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "joint"
    assert main(arguments(data, output, "--reference", "joint")) == 0
    assert list((output / "robots").iterdir()) == [output / "robots" / "0.safetensors"]


def test_help_needs_no_pytorch() -> None:
    code = """
import contextlib, io, json, sys
from fleet_tools.baselines import fleet
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    fleet.main(["--help"])
print(json.dumps([name for name in ("torch", "pydrake", "ray") if name in sys.modules]))
"""
    assert run_python(code) == []


def test_what_processes_hold_changes_no_bit(data: Path, whole: Path, tmp_path: Path) -> None:
    options = ("--robot-memory", "1e-6")
    assert main(arguments(data, tmp_path / "out", *options, **ROUNDS)) == 0
    assert same_result(whole, tmp_path / "out")
