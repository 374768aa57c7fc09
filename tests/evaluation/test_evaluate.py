"""The program, run for real: interrupted, killed, gone on with, given a bad policy."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from evaluated import SMALL

import fleet_tools
from fleet_tools import evaluate
from fleet_tools.evaluation.result import EPISODES, load_evaluation

ROOT = Path(fleet_tools.__file__).resolve().parents[1]
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parents[1])])}
COMMAND = [sys.executable, "-m", "fleet_tools.evaluate"]


def options(folder, *more, policy="zero", episodes=1):
    asked = ["--tool", "hammer", "--split", "train", "--episodes", str(episodes)]
    return ["--policy", policy, *asked, "--output", str(folder), "--workers", "0", *more]


def timeless(folder):
    return [
        episode.model_copy(update={"seconds": 0.0, "info": {}})
        for episode in load_evaluation(folder).episodes
    ]


@pytest.fixture(name="two", scope="module")
def _two(tmp_path_factory):
    """An evaluation of two episodes that was made at one go."""
    folder = tmp_path_factory.mktemp("two") / "zero"
    assert evaluate.main(options(folder, "--quiet", episodes=2)) == 0
    return folder


def test_it_goes_on_where_it_stopped_and_comes_to_the_same(two, tmp_path, capsys):
    assert evaluate.main(options(tmp_path / "it", "--json", "--quiet", episodes=1)) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["asked"], first["done"], first["done_now"], first["complete"]) == (1, 1, 1, False)
    arguments = options(tmp_path / "it", "--json", "--quiet", "--compare", str(two), episodes=2)
    assert evaluate.main(arguments) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["asked"], second["done"], second["done_now"]) == (2, 2, 1)
    assert second["outcomes"] == {"time_limit": 2}
    assert second["scores"]["total"]["end"]["trials"] == 2
    assert second["comparison"]["total"]["neither"] == 2
    assert second["comparison"]["left_out"] == 0
    assert timeless(tmp_path / "it") == timeless(two)
    result = load_evaluation(two).result
    assert result.command.startswith("python -m fleet_tools.evaluate --policy zero --tool hammer")
    assert result.machine.cores > 0


def test_it_says_how_it_went(two, capsys):
    assert evaluate.main(options(two, episodes=2)) == 0
    out = capsys.readouterr().out
    assert out.startswith("zero by tool-use v1")
    assert "0/2 0.0%" in out
    assert "0 episodes now" in out


def test_killed_at_work_it_keeps_what_ended(two, tmp_path):
    command = [*COMMAND, *options(tmp_path, "--quiet", episodes=2)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | PATHS)
    journal = tmp_path / EPISODES
    while process.poll() is None and not (journal.exists() and b"\n" in journal.read_bytes()):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    present = load_evaluation(tmp_path)
    assert len(present.episodes) == 1
    assert present.result.scores is None
    assert evaluate.main(options(tmp_path, "--quiet", episodes=2)) == 0
    assert timeless(tmp_path) == timeless(two)


def test_with_workers_a_bad_policy_costs_its_own_episodes_and_nothing_else(tmp_path):
    protocol = tmp_path / "bad.yaml"
    splits = {"train": {"scenes": 8, "first_seed": SMALL.splits["train"].first_seed}}
    protocol.write_text(yaml.safe_dump(SMALL.model_dump(mode="json") | {"splits": splits}))
    arguments = options(tmp_path / "it", "--json", policy="evaluated:Misbehaving", episodes=8)
    workers = ["--workers", "2", "--timeout", "10", "--protocol", str(protocol), "--quiet"]
    finished = subprocess.run(
        [*COMMAND, *arguments, *workers],
        cwd=ROOT, env=os.environ | PATHS, capture_output=True, text=True,
    )  # fmt: skip
    assert finished.returncode == 1, finished.stderr
    outcomes = [episode.outcome for episode in load_evaluation(tmp_path / "it").episodes]
    assert outcomes == ["policy_error"] * 5 + ["time_limit"] + ["worker_error"] * 2
    assert json.loads(finished.stdout)["scores"]["total"]["worker_errors"] == 2
    for said in (
        "ZeroDivisionError: by zero",
        "must be finite",
        "its worker died",
        "10 s, 2 times",
    ):
        assert said in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--policy", "exprt"], "did you mean 'expert'"),
        (["--tool", "hamer"], "did you mean 'hammer'"),
        (["--split", "all"], "no split in the protocol"),
        (["--protocol", "v0"], "no protocol 'v0'"),
        (["--obs-mode", "sonar"], "no obs_mode 'sonar'"),
        (["--compare", "nowhere"], "nowhere is no evaluation"),
    ],
)
def test_what_cannot_begin_is_said_and_nothing_is_made(tmp_path, capsys, changes, said):
    assert evaluate.main([*options(tmp_path / "it"), *changes]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "it").exists()


def test_another_protocol_is_not_compared_with_before_anything_is_run(two, tmp_path, capsys):
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(SMALL.model_dump(mode="json")))
    more = ["--protocol", str(tmp_path / "own.yaml"), "--compare", str(two)]
    assert evaluate.main(options(tmp_path / "it", *more)) == 2
    assert "Only results of the same protocol" in capsys.readouterr().err
    assert not (tmp_path / "it").exists()


def test_what_a_policy_prints_is_not_in_the_json(tmp_path, capsys):
    arguments = options(tmp_path, "--json", "--quiet", policy="evaluated:Misbehaving")
    assert evaluate.main(arguments) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["outcomes"] == {"policy_error": 1}
    assert "misbehaving" in printed.err
    assert "ended as policy_error: PolicyError: act raised at evaluated.py" in printed.err


def test_ctrl_c_waits_for_the_episode_at_work(tmp_path, capsys, monkeypatch):
    from fleet_tools.evaluation.writer import EvaluationWriter

    add = EvaluationWriter.add

    def add_and_press(writer, episode):
        add(writer, episode)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(EvaluationWriter, "add", add_and_press)
    assert evaluate.main(options(tmp_path, "--quiet", episodes=2)) == 130
    assert "The same command goes on" in capsys.readouterr().err
    assert len(load_evaluation(tmp_path).episodes) == 1
    assert load_evaluation(tmp_path).result.scores.total.end.trials == 1
