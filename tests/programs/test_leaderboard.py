"""The leaderboard program on real results; consistent forgeries are found by running them again."""

import base64
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.rendering import needs_gl
from support.submitted import renamed, write

from fleet_tools import evaluate
from fleet_tools.envs.contact_metrics import Load
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result import Evaluation, decode_actions, encode_actions
from fleet_tools.evaluation.result_folder import RESULT, load_evaluation
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.__main__ import main
from fleet_tools.leaderboard.records import VERIFIED
from fleet_tools.leaderboard.standings import make_standings
from fleet_tools.leaderboard.submissions import Submission, read_submissions
from fleet_tools.leaderboard.verification import draw_episodes

TINY = """
name: tiny
version: 1
description: Two scenes.
tasks: [hammer]
splits: {train: {scenes: 2, first_seed: 4503599627370496}}
"""


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a protocol, and with results of a good policy and of a failing one."""
    root = tmp_path_factory.mktemp("leaderboard")
    (root / "tiny.yaml").write_text(TINY)
    assert evaluate.main(evaluation_options(root, root / "results/expert", "expert")) == 0
    failing = evaluation_options(root, root / "results/failing", "support.submitted:QuittingPolicy")
    assert evaluate.main([*failing, "--name", "failing"]) == 1
    return root


@pytest.fixture(name="results")
def _results(root: Path, tmp_path: Path) -> Path:
    """A copy of its results, of which none is verified."""
    return shutil.copytree(root / "results", tmp_path / "results")


def evaluation_options(root: Path, output: Path, policy: str) -> list[str]:
    return [
        *("--policy", policy, "--protocol", str(root / "tiny.yaml"), "--output", str(output)),
        *("--workers", "0", "--quiet"),
    ]


def run(root: Path, results: Path, *others: str) -> int:
    return main([str(results), "--protocol", str(root / "tiny.yaml"), "--workers", "0", *others])


def small_protocol(root: Path) -> Protocol:
    return load_protocol(str(root / "tiny.yaml"))


def submissions(root: Path) -> list[Submission]:
    """Returns the results of the expert and of the failing policy."""
    accepted, rejections = read_submissions(root / "results", [small_protocol(root)])
    assert not rejections
    return accepted


def forge(evaluation: Evaluation, name: str, changes: dict[str, Any]) -> Evaluation:
    """Changes the first episode of an evaluation, and adapts its scores and its name."""
    first, *others = evaluation.episodes
    episodes = [first.model_copy(update=changes), *others]
    scores = score(evaluation.result.protocol, episodes)
    forged = Evaluation(evaluation.result.model_copy(update={"scores": scores}), episodes)
    return renamed(forged, name)


def test_genuine_results_are_ranked_once_they_are_verified(root, results, tmp_path, capsys):
    page = tmp_path / "page.html"
    options = ["--quiet", "--output", str(page)]
    assert run(root, results, "--json", *options) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert [(m["name"], m["rank"], m["ranking"]) for m in summary["methods"]] == [
        ("expert", None, "unverified"),
        ("failing", None, "unverified"),
    ]
    assert "Not verified, and without rank: expert, failing" in printed.err

    assert run(root, results, "--json", "--verify", "1", *options) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [(m["name"], m["rank"], m["ranking"]) for m in summary["methods"]] == [
        ("failing", 1, "keypoints"),
        ("expert", 1, "privileged"),
    ]
    worst, best = summary["methods"]
    assert (best["total"]["rate"], worst["total"]["rate"], worst["success_once"]) == (1, 0, 0)
    found = [(v["episodes"], v["same"], v["same_outcome"]) for v in summary["verified"]]
    assert found == [(1, 1, 1), (1, 1, 1)]
    assert summary["rejected"] == []
    assert (
        "1 of 1 episodes ended alike when they ran again from their actions, 1 of them with"
        in page.read_text()
    )

    before = page.read_bytes(), page.with_suffix(".md").read_bytes()
    records = (results / VERIFIED).read_bytes()
    assert run(root, results, *options) == 0  # the records say it now
    assert run(root, results, "--verify", "1", *options) == 0  # and nothing runs again
    assert (page.read_bytes(), page.with_suffix(".md").read_bytes()) == before
    assert (results / VERIFIED).read_bytes() == records
    assert run(root, results, "--verify", "1", "--again", *options) == 0
    assert (results / VERIFIED).read_bytes() != records  # another draw


def test_consistent_forgeries_are_out_once_they_run_again(root, tmp_path, capsys):
    genuine = load_evaluation(root / "results/failing")
    actions = decode_actions(genuine.episodes[0].actions).copy()
    fewer = {"actions": encode_actions(actions[:3]), "steps": 3}
    actions[0, 0] *= -1
    contact_metrics = genuine.episodes[0].contact_metrics
    assert contact_metrics is not None
    touched = contact_metrics.model_copy(
        update={"object": Load(peak_N=1, impulse_Ns=0.1, contact_s=0.1)}
    )
    claim = {"outcome": "success", "success": True, "success_once": True}
    forgeries = {
        "claimed": claim | {"contact_metrics": touched},
        "blamed": {"outcome": "simulation_error"},
    }
    harmless = {"changed": {"actions": encode_actions(actions)}, "removed": fewer}
    for name, changes in (forgeries | harmless).items():
        write(forge(genuine, name, changes), tmp_path / "forged" / name)
    page = tmp_path / "page.html"
    assert run(root, tmp_path / "forged", "--quiet") == 0  # the files alone do not show it
    capsys.readouterr()
    assert run(root, tmp_path / "forged", "--verify", "2", "--json", "--output", str(page)) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert {each["folder"]: each["kind"] for each in summary["rejected"]} == dict.fromkeys(
        forgeries, "refuted"
    )
    for name, changes in forgeries.items():
        difference = f"outcome: {changes['outcome']} in the file"
        (error,) = (
            line for line in printed.err.splitlines() if line.startswith(f"Rejected: {name} ")
        )
        assert "1 of 2 episodes end otherwise when they run again" in error
        assert difference in error and difference in page.read_text()
    # Other actions that end alike are no forgery of anything that counts; the bits tell.
    assert {kept["name"]: kept["rank"] for kept in summary["methods"]} == dict.fromkeys(harmless, 1)
    assert page.read_text().count("2 of 2, 1 to the same bits") == len(harmless)


@pytest.mark.slow  # policies in processes of their own
def test_checkpoints_are_verified_by_their_policies(root, tmp_path, capsys):
    pytest.importorskip("torch")
    from support.small_checkpoints import untrained

    (tmp_path / "runs").mkdir()
    checkpoint = untrained(tmp_path / "runs/theirs.safetensors")
    (tmp_path / "runs/state.safetensors").write_bytes(b"of a training")
    results = tmp_path / "results"
    options = [*evaluation_options(root, results / "theirs", checkpoint), "--scenes", "2"]
    assert evaluate.main(options) == 0
    capsys.readouterr()

    def verified() -> tuple[int, dict[str, Any]]:
        options = ["--verify", "1", "--again", "--json", "--quiet"]
        code = run(root, results, *options, "--checkpoints", str(tmp_path / "runs"))
        summary = json.loads(capsys.readouterr().out)
        (record,) = summary["verified"] or summary["rejected"]
        return code, record

    code, record = verified()
    assert (code, record["by"], record["same"], record["same_outcome"]) == (0, "policy", 1, 1)
    # Actions of somebody else under the hash of this policy, and their true end: from the actions
    # alone this is genuine.
    other = tmp_path / "other"
    theirs = load_evaluation(results / "theirs")
    assert evaluate.main(evaluation_options(root, other, "expert")) == 0
    capsys.readouterr()
    expert = load_evaluation(other)
    update = {"policy": theirs.result.policy}
    shutil.rmtree(results / "theirs")
    stolen = expert.result.model_copy(update=update)
    write(Evaluation(stolen, expert.episodes), results / "theirs")
    assert run(root, results, "--verify", "2", "--quiet") == 0
    code, record = verified()
    assert (code, record["kind"]) == (1, "refuted")


def test_the_seed_alone_draws_what_is_verified(root):
    expert, failing = submissions(root)
    assert draw_episodes(expert, 9, seed=0) == expert.evaluation.episodes
    assert draw_episodes(expert, 1, seed=0) == draw_episodes(expert, 1, seed=0)
    assert {draw_episodes(expert, 1, seed=k)[0].index for k in range(20)} == {0, 1}
    assert len(draw_episodes(failing, 1, seed=0)) == 1


def test_a_rejected_result_is_on_the_page_and_the_others_are_ranked(root, tmp_path, capsys):
    genuine = load_evaluation(root / "results/failing")
    write(genuine, tmp_path / "results" / "failing")
    write(renamed(genuine, "bad"), tmp_path / "results" / "bad")
    (tmp_path / "results" / "bad" / RESULT).write_text("{}\n")
    page = tmp_path / "page.html"
    assert run(root, tmp_path / "results", "--output", str(page), "--json") == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert [(each["folder"], each["kind"]) for each in summary["rejected"]] == [("bad", "schema")]
    assert [(each["rank"], each["name"]) for each in summary["methods"]] == [(None, "failing")]
    assert "Rejected: bad (schema)" in printed.err
    assert "Rejected" in page.read_text() and "Rejected" in page.with_suffix(".md").read_text()


def test_an_incomplete_result_is_rejected_with_a_hint_and_shown_by_a_preview(
    root, tmp_path, capsys
):
    whole = load_evaluation(root / "results/expert")
    update = {"complete": False, "scores": score(whole.result.protocol, whole.episodes[:1])}
    partial = Evaluation(whole.result.model_copy(update=update), whole.episodes[:1])
    write(partial, tmp_path / "results/expert")
    page = tmp_path / "page.html"
    assert run(root, tmp_path / "results", "--output", str(page)) == 1
    printed = capsys.readouterr()
    assert "Rejected: expert (incomplete)" in printed.err and "--preview" in printed.err
    assert run(root, tmp_path / "results", "--preview", "--json", "--output", str(page)) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["methods"], summary["rejected"], printed.err) == ([], [], "")
    (preview,) = summary["preview"]
    assert (preview["name"], preview["folder"]) == ("expert", "expert")
    assert preview["missing"] == "only 1 of 2 scenes of each split of hammer"
    hammer = preview["tasks"]["hammer"]
    assert (hammer["successes"], hammer["trials"]) == (1, 1)
    for path in (page, page.with_suffix(".md")):
        assert preview["missing"] in path.read_text()
    assert run(root, tmp_path / "results", "--preview", "--verify", "1") == 0
    assert "Preview: expert: hammer 1 of 1 (" in capsys.readouterr().out


def test_an_empty_folder_gives_an_empty_page(root, tmp_path):
    page = tmp_path / "page.html"
    assert run(root, tmp_path, "--quiet", "--output", str(page)) == 0
    assert "0 methods" not in page.read_text() and "tiny v1" in page.read_text()


def test_a_result_holds_one_training_seed(root, tmp_path, capsys):
    options = evaluation_options(root, tmp_path / "out", "support.submitted:QuittingPolicy")
    options += ["--scenes", "1", "--track", "privileged"]
    assert evaluate.main([*options, "--training-seed", "3"]) == 1
    assert load_evaluation(tmp_path / "out").result.policy.training_seed == 3
    assert evaluate.main([*options, "--training-seed", "4"]) == 2
    assert "training seed is 3, not 4" in capsys.readouterr().err


@needs_gl
@pytest.mark.slow
def test_clips_show_stored_episodes_and_are_the_same_again(root, tmp_path):
    av = pytest.importorskip("av")
    pytest.importorskip("PIL")
    from fleet_tools.studio.pictures.clips import make_clips

    expert = submissions(root)[0]
    clip = make_clips(make_standings([expert], small_protocol(root)))["expert"]
    assert clip.outcomes == {"hammer": "success"}
    with av.open(io.BytesIO(clip.video)) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(frames) == expert.evaluation.episodes[0].steps + 1 + 6
    assert frames[0].shape == (clip.height, clip.width, 3)
    assert frames[0].std() > 10 and (frames[0] != frames[-1]).any()

    page = tmp_path / "page.html"
    assert run(root, root / "results/expert", "--clips", "--quiet", "--output", str(page)) == 0
    (video,) = re.findall(r"data:video/mp4;base64,([^\"]*)", page.read_text())
    assert base64.b64decode(video) == clip.video
