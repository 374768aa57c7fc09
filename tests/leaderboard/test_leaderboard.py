"""The program on results that were really made; what is forged well is found by running it."""

import io
import json
import sys

import pytest
from conftest import needs_gl

from fleet_tools import evaluate
from fleet_tools.evaluation.protocol import load_protocol
from fleet_tools.evaluation.result import (
    EPISODES,
    RESULT,
    decode_actions,
    encode_actions,
    read_result,
)
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.__main__ import main
from fleet_tools.leaderboard.clips import REST, take_clips
from fleet_tools.leaderboard.standings import standings
from fleet_tools.leaderboard.submissions import read_submissions
from fleet_tools.leaderboard.verification import draw
from fleet_tools.utils.libraries import install_line

PROTOCOL = """
name: tiny
version: 1
description: Two scenes.
tasks: [hammer]
splits: {train: {scenes: 2, first_seed: 4503599627370496}}
"""


@pytest.fixture(name="made", scope="module")
def _made(tmp_path_factory):
    """A protocol, and results of it."""
    root = tmp_path_factory.mktemp("leaderboard")
    (root / "tiny.yaml").write_text(PROTOCOL)
    for policy in ("expert", "random"):
        arguments = ["--policy", policy, "--protocol", str(root / "tiny.yaml"), "--workers", "0"]
        arguments += ["--output", str(root / "results" / policy), "--quiet"]
        assert evaluate.main(arguments) == 0
    return root


def run(root, folder, *more):
    return main([str(folder), "--protocol", str(root / "tiny.yaml"), "--workers", "0", *more])


def forge(made, tmp_path, change):
    """A copy of the random policy's result whose first episode is changed, and all scores fit."""
    (submission,) = (
        s
        for s in read_submissions(made / "results", load_protocol(str(made / "tiny.yaml")))[0]
        if s.folder == "random"
    )
    result, episodes = submission.evaluation.result, submission.evaluation.episodes
    episodes = [episodes[0].model_copy(update=change(episodes[0])), *episodes[1:]]
    result = result.model_copy(update={"scores": score(result.protocol, episodes)})
    folder = tmp_path / "forged" / "random"
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(result.model_dump_json(indent=2) + "\n")
    (folder / EPISODES).write_text("".join(f"{e.to_json()}\n" for e in episodes))
    return folder.parent


def test_genuine_results_are_ranked_and_come_out_the_same_again(made, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run(made, made / "results", "--verify", "1", "--json", "--quiet", "--output",
               str(page)) == 0  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    best = said["methods"][0]
    assert (best["rank"], best["name"], best["total"]["rate"]) == (1, "expert", 1.0)
    assert [(v["same"], v["episodes"]) for v in said["verified"]] == [(1, 1), (1, 1)]
    assert said["refused"] == []
    assert "1 of 1 episodes the same, bit for bit, on the same versions" in page.read_text()
    before = page.read_bytes(), page.with_suffix(".md").read_bytes()
    assert run(made, made / "results", "--verify", "1", "--quiet", "--output", str(page)) == 0
    assert (page.read_bytes(), page.with_suffix(".md").read_bytes()) == before


def _claim(episode):
    return {"outcome": "success", "success": True, "success_once": True}


def _nudge(episode):
    actions = decode_actions(episode.actions).copy()
    actions[0, 0] = -actions[0, 0]
    return {"actions": encode_actions(actions)}


def _blame(episode):
    return {"outcome": "simulation_error"}


def _shorten(episode):
    actions = decode_actions(episode.actions)[:3]
    return {"actions": encode_actions(actions), "steps": 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_claim, "outcome: success in the file"),
        (_nudge, "state_digest"),
        (_blame, "outcome: simulation_error in the file"),
        (_shorten, "state_digest"),
    ],
)
def test_what_is_forged_without_a_flaw_is_found_by_running_it(made, tmp_path, capsys, change, said):
    folder = forge(made, tmp_path, change)
    page = tmp_path / "page.html"
    assert run(made, folder, "--quiet") == 0  # nothing that could be seen from outside
    assert run(made, folder, "--verify", "2", "--output", str(page)) == 1
    printed = capsys.readouterr()
    assert "Otherwise: random: episode 0 of hammer, train" in printed.err
    assert said in printed.err
    assert "verified 1 of 2" in printed.out
    assert said.split(":")[0] in page.read_text()


def test_what_is_run_again_is_drawn_by_the_seed_alone(made):
    protocol = load_protocol(str(made / "tiny.yaml"))
    expert, random = read_submissions(made / "results", protocol)[0]
    assert draw(expert, 9, seed=0) == expert.evaluation.episodes
    assert draw(expert, 1, seed=0) == draw(expert, 1, seed=0)
    assert {draw(expert, 1, seed=k)[0].index for k in range(20)} == {0, 1}
    assert len(draw(random, 1, seed=0)) == 1


def test_a_refused_result_is_on_the_page_and_the_others_are_ranked(made, tmp_path, capsys):
    folder = forge(made, tmp_path, _claim)
    (folder / "random" / RESULT).write_text("{}\n")
    page = tmp_path / "page.html"
    assert run(made, folder, "--output", str(page), "--json") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["refused"][0]["kind"] == "schema"
    assert "Refused: random (schema)" in printed.err
    assert "Refused" in page.read_text() and "Refused" in page.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no folder nowhere"),
        (["."], "no protocol"),
        ([".", "--output", "page.pdf"], "ends with .html"),
        ([".", "--output", "nowhere/page.html"], "no folder nowhere"),
    ],
)
def test_what_cannot_begin_is_said_at_once(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    protocol = ["--protocol", "v9"] if said == "no protocol" else []
    assert main([*arguments, *protocol]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_empty_folder_gives_an_empty_page(made, tmp_path):
    page = tmp_path / "page.html"
    assert run(made, tmp_path, "--quiet", "--output", str(page)) == 0
    assert "How to submit" in page.read_text()


def test_a_training_has_its_seed_and_a_folder_holds_one(made, tmp_path, capsys):
    arguments = ["--policy", "expert", "--protocol", str(made / "tiny.yaml"), "--workers", "0"]
    arguments += ["--episodes", "1", "--output", str(tmp_path / "it"), "--quiet"]
    assert evaluate.main([*arguments, "--training-seed", "3"]) == 0
    assert read_result(tmp_path / "it").policy.training_seed == 3
    assert evaluate.main([*arguments, "--training-seed", "4"]) == 2
    assert "training seed is 3, not 4" in capsys.readouterr().err


@needs_gl
def test_clips_show_the_stored_episode_and_are_the_same_again(made):
    av = pytest.importorskip("av")
    pytest.importorskip("PIL")
    protocol = load_protocol(str(made / "tiny.yaml"))
    expert, _ = read_submissions(made / "results", protocol)[0]
    rows = standings([expert], protocol)
    clip, again = (take_clips(rows)["expert"] for _ in range(2))
    assert clip == again
    with av.open(io.BytesIO(clip.video)) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert clip.outcomes == {"hammer": "success"}
    assert len(frames) == expert.evaluation.episodes[0].steps + 1 + REST
    assert frames[0].shape == (clip.height, clip.width, 3)
    assert frames[0].std() > 10 and (frames[0] != frames[-1]).any()


@needs_gl
def test_clips_are_on_the_page(made, tmp_path):
    pytest.importorskip("av")
    page = tmp_path / "page.html"
    assert run(made, made / "results" / "expert", "--clips", "--quiet", "--output", str(page)) == 0
    assert page.read_text().count("data:video/mp4;base64,AAAA") == 1


@pytest.mark.parametrize("module", ["av", "PIL"])
def test_clips_without_their_libraries_say_what_installs_them(
    module, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, module, None)
    assert main([str(tmp_path), "--clips"]) == 2
    assert install_line("video") in capsys.readouterr().err
