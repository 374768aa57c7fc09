"""The program that evaluates: interrupted, killed, resumed, and run with faulty policies."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from support.evaluated import FIRST, SMALL, FaultyPolicy, as_log, without_times
from support.processes import ROOT, run_command
from support.rendering import needs_gl

from fleet_tools import evaluate
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.evaluation.result_folder import RESULT, EvaluationWriter, load_evaluation
from fleet_tools.evaluation.run import BEGUN, evaluate_policy
from fleet_tools.parallel.workers import LostJob, Work, WorkerOptions
from fleet_tools.policies.confined import VARIABLES, can_be_alone
from fleet_tools.studio.pictures.failures import SHOWN

J = TypeVar("J")
R = TypeVar("R")

COMMAND = [sys.executable, "-m", "fleet_tools.evaluate"]
Capture = pytest.CaptureFixture[str]
FAULTY = "support.evaluated:FaultyPolicy"


def options(folder: Path, *more: str, policy: str = "expert", scenes: int = 1) -> list[str]:
    """Returns the program's arguments, with which it works without workers."""
    trials = ["--tool", "hammer", "--split", "train", "--scenes", str(scenes)]
    return ["--policy", policy, *trials, "--output", str(folder), "--workers", "0", *more]


def episodes(folder: Path) -> list[EpisodeResult]:
    """Returns the stored episodes without wall times."""
    return [without_times(episode) for episode in load_evaluation(folder).episodes]


def write_protocol(path: Path, **changes: Any) -> str:
    """Writes the small protocol with some of its entries replaced; returns the path."""
    path.write_text(yaml.safe_dump(SMALL.model_dump(mode="json", exclude={"task_files"}) | changes))
    return str(path)


@pytest.fixture(name="two", scope="module")
def _two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation of two scenes that was not interrupted."""
    folder = tmp_path_factory.mktemp("two") / "expert"
    assert evaluate.main(options(folder, "--quiet", scenes=2)) == 0
    return folder


@pytest.fixture(name="theirs", scope="module")
def _theirs(two: Path) -> Path:
    """The same as of another policy, which fails in all of them."""
    folder = shutil.copytree(two, two.with_name("theirs"))
    described = json.loads((folder / RESULT).read_text())
    described["policy"] |= {"name": "theirs", "kind": "factory", "content_digest": "ab"}
    (folder / RESULT).write_text(json.dumps(described))
    failed = {"outcome": "time_limit", "success": False, "success_once": False}
    as_log(folder, lambda lines: [line.update(failed) for line in lines])
    return folder


# --- Resumption -----------------------------------------------------------------------------


@pytest.mark.slow  # of `collect`: test_collect.py
def test_ctrl_c_waits_for_the_episode_in_progress_and_the_same_command_resumes(
    two, theirs, tmp_path, capsys, monkeypatch
):
    append = EvaluationWriter.append

    def append_and_interrupt(writer: EvaluationWriter, record: EpisodeResult) -> None:
        append(writer, record)
        os.kill(os.getpid(), signal.SIGINT)

    command = options(tmp_path, "--json", "--quiet", "--against", str(theirs), scenes=2)
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationWriter, "append", append_and_interrupt)
        assert evaluate.main(command) == 130
    printed = capsys.readouterr()
    assert "The same command resumes it" in printed.err
    first = json.loads(printed.out)
    assert (first["requested"], first["done"], first["done_now"]) == (2, 1, 1)
    assert first["scores"]["total"]["success"]["trials"] == 1
    assert first["comparison"]["left_out"] == 1
    assert first["comparison"]["anytime"]["scenes"] == 1
    assert len(episodes(tmp_path)) == 1 and episodes(tmp_path)[0] in episodes(two)

    assert evaluate.main(command) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["requested"], second["done"], second["done_now"]) == (2, 2, 1)
    assert second["outcomes"] == {"success": 2}
    assert second["scores"]["total"]["success"]["trials"] == 2
    assert second["comparison"]["total"]["only_first"] == 2
    assert second["comparison"]["left_out"] == 0
    assert episodes(tmp_path) == episodes(two)
    result = load_evaluation(tmp_path).result
    assert result.command.startswith("python -m fleet_tools.evaluate --policy expert --tool hammer")
    assert result.machine.cores > 0


def test_a_comparison_stops_at_its_verdict_and_without_stop_completes_the_result(
    theirs, tmp_path, capsys
):
    """Both fail everywhere, which one scene shows to be equivalent within such a margin."""
    more = ["--json", "--against", str(theirs), "--margin", "0.99"]
    command = options(tmp_path, *more, policy="zero", scenes=2)
    for now in (1, 0):  # the second time, nothing is left to run
        assert evaluate.main([*command, "--stop"]) == 0
        printed = capsys.readouterr()
        told = json.loads(printed.out)
        assert (told["requested"], told["done"], told["done_now"]) == (2, 1, now)
        assert (told["stopped"], told["complete"]) == (True, False)
        assert told["comparison"]["anytime"]["verdict"] == "equivalent within 99 points"
        assert not told["leaderboard"]["can_enter"]
        assert "If --stop ends it, it cannot." in printed.err
    stopped = load_evaluation(tmp_path).result
    assert stopped.stopped is not None and stopped.stopped.against == "theirs"
    assert evaluate.main([*options(tmp_path, policy="zero", scenes=2), *more[1:], "--stop"]) == 0
    text = capsys.readouterr().out
    assert "stopped early" in text and "rates and intervals of this table are biased" in text
    assert "At any time: equivalent within 99 points after 1 of 2 scenes" in text

    assert evaluate.main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], told["done_now"], told["stopped"]) == (2, 1, False)
    assert told["comparison"]["anytime"]["scenes"] == 1  # later ones do not change a verdict
    assert load_evaluation(tmp_path).result.stopped is None
    assert "stopped" not in json.loads((tmp_path / RESULT).read_text())


def test_stopping_wants_a_comparison_and_a_margin_below_1(two, tmp_path, capsys):
    more = ["--against", str(two)]
    for wrong, message in (
        (["--stop"], "give the other result with --against"),
        ([*more, "--margin", "1"], "margin"),
    ):
        with pytest.raises(SystemExit, match="2"):
            evaluate.main(options(tmp_path / "result", *wrong))
        assert message in capsys.readouterr().err
    assert evaluate.main(options(tmp_path / "result", *more)) == 2
    assert "belongs to the same policy as this evaluation" in capsys.readouterr().err
    assert not (tmp_path / "result").exists()


# --- Output ---------------------------------------------------------------------------------


def test_the_summary_counts_the_requested_trials(two, capsys):
    assert evaluate.main(options(two, "--json", "--quiet", scenes=1)) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["requested"], summary["done"], summary["done_now"]) == (1, 1, 0)
    assert summary["scores"]["total"]["success"]["trials"] == 2
    assert not summary["complete"]


def test_the_summary_has_scores_and_speed(two, capsys):
    assert evaluate.main(options(two, scenes=2)) == 0
    out = capsys.readouterr().out
    assert out.startswith("expert, protocol tool-use v1 (")
    assert "2/2 100.0%" in out
    assert "0 episodes now" in out


def test_output_of_a_policy_is_not_in_the_json(tmp_path, capsys):
    protocol = write_protocol(tmp_path / "faulty.yaml")  # whose first scene has the first fault
    more = ["--json", "--quiet", "--track", "privileged", "--protocol", protocol]
    assert evaluate.main(options(tmp_path / "result", *more, policy=FAULTY)) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["outcomes"] == {"policy_error": 1}
    assert summary["causes"]["policy_error"]["count"] == 1
    assert "a policy's own output" in printed.err
    assert "ended as policy_error: PolicyError: act raised at evaluated.py" in printed.err


def test_it_says_at_its_start_whether_the_result_can_enter_the_leaderboard(two, tmp_path, capsys):
    assert evaluate.main(options(two, "--json", scenes=2)) == 0
    printed = capsys.readouterr()
    entry = json.loads(printed.out)["leaderboard"]
    assert (entry["can_enter"], entry["absent_tasks"]) == (
        False,
        ["knife", "pry_bar", "screwdriver", "spatula", "wrench"],
    )
    (reason,) = entry["reasons"]
    assert "2 of 20 scenes of train, 0 of 20 scenes of unseen_pairs, unseen_tools" in reason
    first = printed.err.splitlines()[0]
    assert first.startswith("This result cannot enter the leaderboard: it has only 2 of 20")
    assert evaluate.main(options(two, "--quiet", "--json", scenes=2)) == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out)["leaderboard"], printed.err) == (entry, "")

    own = write_protocol(tmp_path / "own.yaml")
    assert evaluate.main(options(tmp_path / "own", "--protocol", own, policy="zero")) == 0
    printed = capsys.readouterr()
    assert "it follows 'small v1'" in printed.err
    assert "  1 ended as time_limit, such as hammer " in printed.out


# --- Workers --------------------------------------------------------------------------------


class LosingWorkers(WorkerOptions):
    """Workers none of which survives; those that really die take half a minute, see below."""

    def run(
        self,
        jobs: Callable[[], J | None] | Iterable[J],
        make_work: Callable[[], Work[J, R]],
        last_job: J | None = None,
        *,
        before_each: Callable[[J], None] = lambda job: None,
        **more: Any,
    ) -> Generator[tuple[J, R | LostJob], None, None]:
        assert callable(jobs)
        while (job := jobs()) is not None:
            before_each(job)
            yield job, LostJob("its worker died")
        if last_job is not None:
            yield last_job, LostJob("its worker died")


def test_a_lost_trial_is_stored_and_reported_as_an_error(tmp_path, capsys):
    config = EvaluationConfig(policy="expert", tool="hammer", split="train", scenes=1)
    (episode,) = evaluate_policy(config, tmp_path, LosingWorkers()).episodes
    assert (episode.outcome, episode.success, episode.steps) == ("worker_error", False, 0)
    assert evaluate.main(options(tmp_path, "--json")) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["done_now"] == 0
    score = json.loads(printed.out)["scores"]["total"]
    assert (score["success"]["trials"], score["worker_errors"]) == (1, 1)
    assert "1 ended as worker_error: its worker died" in printed.err


OUTCOMES_AND_ERRORS = {
    "raise": ("policy_error", "ZeroDivisionError: by zero"),
    "nan": ("policy_error", "finite numbers"),
    "shape": ("policy_error", "has shape (6,)"),
    "word": ("policy_error", "a floating-point dtype"),
    "exit": ("policy_error", "SystemExit"),
    "none": ("time_limit", ""),
    "die": ("worker_error", "its worker died"),
    "hang": ("worker_error", "it took longer than 10 s"),
}


@pytest.mark.slow
def test_with_workers_a_faulty_policy_affects_only_its_own_episodes(tmp_path):
    pytest.importorskip("ray")
    scenes = {"train": {"scenes": len(FaultyPolicy.FAULTS), "first_seed": FIRST}}
    protocol = write_protocol(tmp_path / "faulty.yaml", splits=scenes)
    folder = tmp_path / "result"
    arguments = options(folder, "--json", policy=FAULTY, scenes=len(FaultyPolicy.FAULTS))
    arguments += ["--track", "privileged"]  # it looks up the scene to choose its fault
    workers = ["--workers", "2", "--timeout", "10", "--protocol", protocol, "--quiet"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    finished = run_command(*COMMAND, *arguments, *workers, PYTHONPATH=path)
    assert finished.returncode == 1, finished.stderr
    expected = [OUTCOMES_AND_ERRORS[fault] for fault in FaultyPolicy.FAULTS]
    assert [e.outcome for e in episodes(folder)] == [outcome for outcome, _ in expected]
    assert json.loads(finished.stdout)["scores"]["total"]["worker_errors"] == 2
    for _, message in expected:
        assert message in finished.stderr
    assert "Traceback" not in finished.stderr


# --- Policies that attack; more of them: tests/policies/test_confined.py ---------------------

KILLING = "support.confined_policies:Killing"


def asked(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Returns the file in which `KILLING` counts how often it is asked for an action."""
    monkeypatch.setenv("FLEET_TOOLS_TEST_MARK", str(folder / "asked"))
    monkeypatch.setenv(VARIABLES, "FLEET_TOOLS_TEST_MARK")
    return folder / "asked"


@pytest.fixture(name="among_others")
def _among_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Policies see other processes, as where `unshare` is not there."""
    monkeypatch.setenv("PATH", "/nowhere")
    can_be_alone.cache_clear()
    yield
    can_be_alone.cache_clear()


@pytest.mark.usefixtures("among_others")
def test_a_policy_that_kills_its_worker_loses_this_episode(tmp_path, capsys, monkeypatch):
    mark = asked(monkeypatch, tmp_path)
    arguments = options(tmp_path / "out", "--workers", "1", policy=KILLING)
    assert evaluate.main(arguments) == 1
    (episode,) = episodes(tmp_path / "out")
    assert (episode.outcome, episode.tries, episode.steps) == ("worker_error", 1, 0)
    assert mark.read_text().count("asked") == 1
    assert not (tmp_path / "out" / BEGUN).exists()
    printed = capsys.readouterr().err
    assert "1 ended as worker_error: its worker died (SIGKILL)" in printed
    assert "sees this user's other processes" in printed
    assert evaluate.main(arguments) == 1  # and is not given it again
    assert mark.read_text().count("asked") == 1


def test_a_policy_that_sees_no_other_process_kills_itself(tmp_path, monkeypatch):
    if not can_be_alone():
        pytest.skip("user namespaces are not allowed here")
    mark = asked(monkeypatch, tmp_path)
    assert evaluate.main(options(tmp_path / "out", policy=KILLING, scenes=2)) == 1
    stored = episodes(tmp_path / "out")
    assert [(each.outcome, each.tries) for each in stored] == [("policy_error", 1)] * 2
    assert all("the policy's process ended with" in str(each.error) for each in stored)
    assert mark.read_text().count("asked") == 2


def test_trials_that_ended_the_program_are_counted_and_not_begun_for_ever(tmp_path, capsys):
    """Of code of others; a policy of the package is not to blame."""
    for policy, ends in (
        ("support.confined_policies:Dying", ("worker_error", 2)),
        ("zero", ("time_limit", 3)),
    ):
        folder = tmp_path / ends[0]
        evaluate.main(options(folder, "--quiet", policy=policy))
        (folder / BEGUN).write_text("hammer/train/0\n" + "hammer/train/1\n" * 2 + "hammer/tra")
        capsys.readouterr()
        evaluate.main(options(folder, policy=policy, scenes=2))
        stored = load_evaluation(folder).episodes[1]
        assert (stored.outcome, stored.tries) == ends
        assert "1 episodes were begun more than once" in capsys.readouterr().err


@pytest.mark.slow  # starts the program
def test_a_policy_that_kills_the_program_is_asked_twice_and_no_more(tmp_path, monkeypatch):
    mark = asked(monkeypatch, tmp_path)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    arguments = options(tmp_path / "out", policy=KILLING)
    for code, count in ((-signal.SIGKILL, 1), (-signal.SIGKILL, 2), (1, 2)):
        done = run_command(*COMMAND, *arguments, PATH="/nowhere", PYTHONPATH=path)
        assert done.returncode == code, done.stderr
        assert mark.read_text().count("asked") == count
    (episode,) = episodes(tmp_path / "out")
    assert (episode.outcome, episode.tries) == ("worker_error", 2)


@pytest.mark.parametrize("track", ["observations", "privileged"])
def test_a_module_that_sleeps_at_import_is_an_error(track, tmp_path, capsys, monkeypatch):
    (tmp_path / "sleeping.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.syspath_prepend(tmp_path)
    more = ["--timeout", "3", "--track", track]
    assert evaluate.main(options(tmp_path / "out", *more, policy="sleeping:make")) == 2
    assert "did not answer within 3 s" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- What cannot begin ----------------------------------------------------------------------


def test_a_result_of_another_protocol_is_refused_before_anything_is_run(two, tmp_path, capsys):
    protocol = write_protocol(tmp_path / "own.yaml")
    more = ["--protocol", protocol, "--against", str(two)]
    assert evaluate.main(options(tmp_path / "result", *more)) == 2
    assert "Only results of the same protocol" in capsys.readouterr().err
    assert not (tmp_path / "result").exists()


def test_a_page_of_failures_is_an_html_file(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(options(tmp_path / "out", "--failures", str(tmp_path / "failures.txt")))
    assert "failures.txt does not end with .html" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@needs_gl
@pytest.mark.slow
def test_a_page_of_failures_shows_the_first_of_each_task_and_outcome(tmp_path):
    pytest.importorskip("av")
    page = tmp_path / "failures.html"
    arguments = options(tmp_path / "zero", "--quiet", "--failures", str(page), policy="zero")
    assert evaluate.main([*arguments, "--scenes", str(SHOWN + 1)]) == 0
    text = page.read_text()
    assert f"{SHOWN + 1} of {SHOWN + 1} episodes failed" in text
    assert text.count("data:video/mp4;base64,") == SHOWN
    assert text.count("without joint_displacement, caused_by_part") == SHOWN
    assert "here it ends" not in text
    assert "<b>" not in text and "http" not in text.replace('http-equiv="', "")
