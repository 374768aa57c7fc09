"""`python -m fleet_tools.baselines.fleet` goes on after kill -9, and refuses what it cannot do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import psutil
from conftest import ROOT, run_python
from fleet_cases import Tapped, config_of, local, plan_of, played, same, write_data
from safetensors.torch import load_file
from small_data_sets import Drawn, hammer_header, write

from fleet_tools.baselines.federated.record import load, open_folder
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.fleet import main
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.parallel import cluster

ROUNDS = {"merge_every": 1, "training": {"epochs": 12, "batch_size": 8, "seed": 5}}
PROGRAM = [sys.executable, "-m", "fleet_tools.baselines.fleet"]


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("program") / "data")


@pytest.fixture(scope="module", name="whole")
def _whole(data, tmp_path_factory):
    """Twelve rounds at one go."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(arguments(data, folder / "out", **ROUNDS)) == 0
    return folder / "out"


def arguments(where, output, *more, workers="0", **changes):
    """Writes a config beside the output, and returns the program's arguments."""
    settings = config_of(where).model_dump(mode="json", exclude_defaults=True) | changes
    path = Path(f"{output}.yaml")
    path.write_text(yaml.safe_dump(settings))
    return [str(path), "--output", str(output), "--workers", workers, "--quiet", *more]


def same_result(one, other):
    """Whether two runs came to the same, apart from how long they took."""
    told = [[each.model_dump(exclude={"seconds"}) for each in load(k).told] for k in (one, other)]
    files = ["merged.safetensors", "report.json", *(f"robots/{k}.safetensors" for k in range(3))]
    bits = all((one / name).read_bytes() == (other / name).read_bytes() for name in files)
    return bits and told[0] == told[1]


def replies(folder):
    return len(list((folder / "replies").glob("[0-9]*.safetensors")))


def rounds(folder):
    with contextlib.suppress(FileNotFoundError):
        return (folder / "rounds.jsonl").read_bytes().count(b"\n")
    return 0


def test_the_program_plays_the_rounds_and_says_what_came_of_them(data, whole, tmp_path, capsys):
    plan = plan_of(data, **ROUNDS)
    expected = played(plan)
    record = load(whole)
    assert same(record.weights, expected[-1].weights)
    assert same(load_checkpoint(whole / "merged.safetensors").weights, expected[-1].weights)
    for robot, part in expected[-1].parts.items():
        weights = load_file(whole / "robots" / f"{robot}.safetensors")
        assert same(weights, part.reply.weights)
    lines = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [each.loss for each in expected]
    report = json.loads((whole / "report.json").read_text())
    assert (
        report["traffic"]["bytes_to_robots"] + report["traffic"]["bytes_from_robots"]
        == (lines[-1]["bytes_so_far"])
    )
    numbers = 7 + 2 * 3 + 6  # float32 each
    steps = [robot["rounds"] and robot["data_bytes"] / (4 * numbers) for robot in report["robots"]]
    assert steps == [part.reply.steps for part in expected[-1].parts.values()]
    assert report["data_at_home"] == 4 * numbers * sum(steps)
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    shown = [each for each in arguments(data, whole, **ROUNDS) if each != "--quiet"]
    assert main(shown) == 0  # there is nothing left to do
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before
    out = capsys.readouterr().out
    assert "3 robots, naive_average, 12 rounds of 1 epoch\n" in out and "stayed home" in out


def test_after_kill_9_between_rounds_and_within_one_it_comes_to_the_same_bits(
    data, whole, tmp_path
):
    killed = tmp_path / "killed"
    command = [*PROGRAM, *arguments(data, killed, **ROUNDS)]
    seen = []
    for moment in (
        lambda: replies(killed) >= 1,
        lambda: rounds(killed) > seen[0][0] + 1,
    ):
        process = subprocess.Popen(command, cwd=ROOT)
        while process.poll() is None and not moment():
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        seen.append((rounds(killed), replies(killed)))
    assert seen[-1][0] < 12
    assert main(arguments(data, killed, **ROUNDS)) == 0
    assert same_result(whole, killed)
    names = [{path.name for path in folder.iterdir()} for folder in (whole, killed)]
    assert names[0] == names[1]


def test_replies_that_are_there_are_not_asked_for_again(data, whole, tmp_path):
    plan, folder = plan_of(data, **ROUNDS), tmp_path / "out"
    open_folder(folder, plan)

    def stop(robot, before, answer):
        if robot == 2:
            raise KeyboardInterrupt
        return answer

    with pytest.raises(KeyboardInterrupt):
        run(plan, Tapped(local(plan), stop), folder)
    assert replies(folder) == 2
    tapped = Tapped(local(plan))
    assert same(run(plan, tapped, folder).weights, load(whole).weights)
    assert [line[0] for line in tapped.lines] == [2] + [0, 1, 2] * 11
    told = [each.model_dump(exclude={"seconds"}) for each in load(folder).told]
    assert told == [each.model_dump(exclude={"seconds"}) for each in load(whole).told]


@pytest.mark.slow
def test_robots_and_driver_killed_in_a_cluster_of_their_own(data, tmp_path):
    output = tmp_path / "out"
    changes = {"training": {"epochs": 120, "batch_size": 8, "seed": 5}, "merge_every": 2}
    command = [*PROGRAM, *arguments(data, output, workers="2", **changes)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)

    def actors():
        found = []
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "ray::_Host" in "".join(child.cmdline()):
                    found.append(child.pid)
        return found

    def wait_for(condition):
        deadline = time.monotonic() + 300
        while not condition():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)

    wait_for(lambda: rounds(output) >= 1)
    orphans = actors()
    assert len(orphans) == 3
    os.kill(orphans[0], signal.SIGKILL)
    at = rounds(output)
    wait_for(lambda: rounds(output) > at + 3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    told = load(output).told
    assert len(told) < 60
    left_out = [(each.round, one.left_out) for each in told for one in each.robots if one.left_out]
    assert len(left_out) == 1 and "its actor is gone" in left_out[0][1]
    assert all(one.left_out is None for one in told[-1].robots)  # it is back
    deadline = time.monotonic() + 60
    while any(map(psutil.pid_exists, orphans)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert main(arguments(data, output, **changes)) == 0
    report = json.loads((output / "report.json").read_text())
    assert [each["round"] for each in report["left_out"]] == [left_out[0][0]]
    assert report["rounds"] == 60


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(data, whole, tmp_path):
    stopped = tmp_path / "stopped"
    process = subprocess.Popen(
        [*PROGRAM, *arguments(data, stopped, **ROUNDS)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and rounds(stopped) < 3:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "The same command goes on from here" in errors
    assert main(arguments(data, stopped, **ROUNDS)) == 0
    assert same_result(whole, stopped)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "git_rebasn"}, "did you mean 'git_rebasin'"),
        ({"options": {"rounds": 2}}, "no option of this method 'rounds'"),
        ({"method": "git_rebasin", "options": {"rounds": "many"}}, "is a whole number"),
        ({"method": "git_rebasin_activations"}, "matches by weights"),
        ({"method": "common_init"}, "goes with `initialization: common`"),
        ({"policy": "elmn"}, "did you mean 'elman'"),
        ({"policy": {"body": {"type": "mlp", "wdth": 3}}}, "did you mean 'width'"),
        ({"merge_every": 3}, "let merge_every divide them"),
        ({"participation": 0}, "participation: "),
        ({"held_out": 0}, "held_out: "),
        ({"held_out": 0.99}, "none is left to learn from"),
        ({"robots": 50}, "can be dealt to between 1 and 11 robots"),
        ({"split": {"by": "task", "alpha": None}}, "Give fewer robots, or an alpha"),
        ({"data": ["nowhere"]}, "nowhere is not a data set"),
        ({"epochs": 3}, "There is no key 'epochs'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    data, tmp_path, capsys, changes, message
):
    output = tmp_path / "refused"
    assert main(arguments(data, output, **changes)) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_a_folder_of_something_else_is_left_as_it_is(data, whole, capsys):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    other = ROUNDS | {"participation": 0.5}
    assert main(arguments(data, whole, **other)) == 2
    assert "holds another fleet, in which participation is 1.0, not 0.5" in capsys.readouterr().err
    assert main(arguments(data, data)) == 2
    assert "is there, and no fleet" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_numbers_that_explode_stop_the_fleet_and_name_every_robot(data, tmp_path, capsys):
    for epochs, expected in (
        (1, ["whose merge has the loss nan", "a smaller learning rate than 1e+30"]),
        (3, ["no robot is left", *(f"robot {robot}: DivergedError" for robot in range(3))]),
    ):
        training = {"epochs": epochs, "learning_rate": 1e30}
        output = tmp_path / str(epochs)
        assert main(arguments(data, output, training=training, merge_every=None)) == 1
        said = capsys.readouterr().err
        assert all(words in said for words in expected), said
        assert not (output / "merged.safetensors").exists()


@pytest.mark.slow
def test_merged_tuned_and_own_policies_are_tried_where_the_data_were_collected(tmp_path, capsys):
    data, output = tmp_path / "data", tmp_path / "out"
    write(data, Drawn([5, 4, 6, 3], [True] * 4, 0), hammer_header())
    tried = {"robots": 1, "rollouts": 1, "try_robots": True, "fine_tuning": {"epochs": 1}}
    tried["merge_every"] = 4
    assert main(arguments(data, output, "--json", **tried)) == 0
    report = json.loads(capsys.readouterr().out)
    for each in (report, report["fine_tuned"], *report["robots"], *report["curve"]):
        came = each["rollouts"]["hammer"]
        assert came["episodes"] == sum(came["outcomes"].values()) == 1
    assert [each["round"] for each in report["curve"]] == [1]
    tuned = load_checkpoint(output / "fine_tuned.safetensors")
    assert not same(tuned.weights, load(output).weights)


@pytest.mark.slow
def test_on_a_running_cluster(whole, data, tmp_path):
    with cluster.connected(2, None) as ray:
        address = ray.get_runtime_context().gcs_address
        given = arguments(
            data, tmp_path / "out", "--ray-address", address, "--json", workers="2", **ROUNDS
        )
        came = subprocess.run([*PROGRAM, *given], cwd=ROOT, capture_output=True, text=True)
    assert came.returncode == 0, came.stderr
    assert json.loads(came.stdout)["rounds"] == 12
    assert same_result(whole, tmp_path / "out")


def test_a_reference_is_one_option_away(data, tmp_path):
    assert main(arguments(data, tmp_path / "joint", "--reference", "joint")) == 0
    assert list((tmp_path / "joint" / "robots").iterdir()) == [
        tmp_path / "joint" / "robots" / "0.safetensors"
    ]


def test_help_needs_no_pytorch():
    code = """
import contextlib, io, json, sys
from fleet_tools.baselines import fleet
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    fleet.main(["--help"])
print(json.dumps([name for name in ("torch", "pydrake", "ray") if name in sys.modules]))
"""
    assert run_python(code) == []
