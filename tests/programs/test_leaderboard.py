"""The leaderboard program on policies that really run; and those who would rank without one."""

import base64
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.rendering import needs_gl
from support.submitted import renamed, write, write_entry

from fleet_tools import evaluate
from fleet_tools.evaluation.protocol_file import load_levels
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.leaderboard.__main__ import main
from fleet_tools.leaderboard.board import Method
from fleet_tools.leaderboard.host import HOST, read_round
from fleet_tools.leaderboard.standings import make_board

TINY = """
name: tiny
version: 1
description: One scene.
tasks: [hammer]
splits: {train: {scenes: 1, first_seed: 4503599627370496}}
"""

MEMORIZER = """
import json
import pathlib

import numpy as np

KNOWN = json.loads((pathlib.Path(__file__).parent / "policy_scenes.py").read_text())


class Memorizer:
    def __init__(self, env):
        pass

    def reset(self, seed=0):
        self.plan = None

    def act(self, observation):
        if self.plan is None:
            seen = np.concatenate([np.ravel(v) for k, v in sorted(observation.items())])
            known = np.allclose(seen, KNOWN["seen"], atol=1e-9)
            self.plan = iter(KNOWN["actions"] if known else [])
        return np.array(next(self.plan, [0.0] * 6), np.float32)


make = Memorizer
"""

SEED = "a seed for tests"


@pytest.fixture(name="expert", scope="module")
def _expert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The expert's result in the public scene, beside its protocol."""
    folder = tmp_path_factory.mktemp("expert")
    (folder / "tiny.yaml").write_text(TINY)
    options = ["--policy", "expert", "--output", str(folder / "result"), "--workers", "0"]
    assert evaluate.main([*options, "--protocol", str(folder / "tiny.yaml"), "--quiet"]) == 0
    return folder


@pytest.fixture(name="root")
def _root(expert: Path, tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


def verify(root: Path, name: str, *options: str) -> int:
    given = ["--protocol", str(root / "tiny.yaml"), "--scenes", "1", "--workers", "0"]
    return main(["verify", str(root / "entries" / name), *given, "--seed", SEED, *options])


def methods(root: Path) -> dict[str, Method]:
    """Returns the methods of a board on which a single fresh scene is enough for a rank."""
    board, _ = make_board(root, [*load_levels(str(root / "tiny.yaml")).values()], least_scenes=1)
    return {method.name: method for method in board.methods}


def rate(method: Method) -> float | None:
    return method.score and method.score.rate


def test_policies_are_ranked_once_the_host_has_run_them(root, capsys):
    write_entry(root, "zero", {"policy": "zero"})
    write_entry(root, "expert", {"policy": "expert"}, track="privileged")
    assert {each.rank for each in methods(root).values()} == {None}
    assert verify(root, "zero", "--quiet") == 0
    write_entry(root, "again", {"policy": "zero"})
    for name, new in (("again", ["--new-round"]), ("expert", []), ("zero", [])):
        assert verify(root, name, "--json", "--quiet", *new) == 0
    found = methods(root)
    assert {name: (each.rank, rate(each), each.track) for name, each in found.items()} == {
        "expert": (1, 1.0, "privileged"),
        "zero": (1, 0.0, "keypoints"),
        "again": (None, 0.0, "keypoints"),
    }
    assert found["again"].same_actions_as == ("zero",)
    assert found["zero"].failures == {"object not touched": 1}
    round_ = read_round(root)
    assert round_ is not None
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["commitment"] == round_.commitment and SEED not in json.dumps(summary)
    # What has been run is not run again, and another title changes nothing.
    content = json.loads((root / "entries/zero/entry.yaml").read_text())
    (root / "entries/zero/entry.yaml").write_text(json.dumps({**content, "title": "Nothing"}))
    (folder,) = (each.parent for each in (root / HOST / "zero").rglob("result.json"))
    before = load_evaluation(folder).episodes  # with the wall time of each
    assert verify(root, "zero", "--quiet") == 0
    assert before == load_evaluation(folder).episodes
    assert methods(root)["zero"].rank == 1
    page = ["page", str(root), "--protocol", str(root / "tiny.yaml"), "--publish", "--quiet"]
    assert main([*page, "--output", str(root / "page.html")]) == 0
    assert "Nothing" in (root / "page.html").read_text()
    assert verify(root, "zero") == 2
    assert "Start another round with --new-round" in capsys.readouterr().err


def test_a_policy_that_knows_the_public_scenes_is_seen_through_in_fresh_ones(
    root, expert, capsys, monkeypatch
):
    public = load_evaluation(expert / "result")
    env = public.result.protocol.make_env("hammer")
    scene = public.result.protocol.scene(env.task, public.episodes[0])
    seen, _ = env.reset(options={"scene": scene})
    env.close()
    entry = write_entry(root, "memorizer", {"policy": "zero"})
    known = {
        "seen": np.concatenate([np.ravel(v) for _, v in sorted(seen.items())]).tolist(),
        "actions": decode_actions(public.episodes[0].actions).tolist(),
    }
    (entry.folder / "policy.py").write_text(MEMORIZER)
    (entry.folder / "policy_scenes.py").write_text(json.dumps(known))
    content = entry.file.model_dump(mode="json")
    content["policies"] = [{"policy": "policy:make"}]
    (entry.folder / "entry.yaml").write_text(json.dumps(content))
    monkeypatch.syspath_prepend(str(entry.folder))
    options = ["--policy", "policy:make", "--name", "memorizer", "--workers", "0", "--quiet"]
    results = ["--output", str(entry.folder / "results/nominal")]
    assert evaluate.main([*options, *results, "--protocol", str(root / "tiny.yaml")]) == 0
    (entry.folder / "__pycache__").mkdir(exist_ok=True)
    (entry.folder / "__pycache__" / "policy.cpython-311.pyc").touch()  # may be other code
    assert verify(root, "memorizer") == 2
    assert "__pycache__" in capsys.readouterr().err
    shutil.rmtree(entry.folder / "__pycache__")
    assert verify(root, "memorizer", "--quiet") == 0
    assert not (entry.folder / "__pycache__").exists()
    method = methods(root)["memorizer"]
    nominal = method.levels["nominal"]
    assert nominal is not None and (nominal.rate, rate(method)) == (1.0, 0.0)


def test_the_experts_edited_result_is_refuted_by_the_policy_that_it_claims(root, expert, capsys):
    """It was 100%, rank 1 and verified in every track that the edit named."""
    entry = write_entry(root, "mine", {"policy": "zero"})
    forged = renamed(
        load_evaluation(expert / "result"),
        "mine",
        source="zero",
        track="observations",
    )
    write(forged, entry.folder / "results" / "nominal")
    assert verify(root, "mine", "--quiet") == 1
    assert "1 of 1 episodes go otherwise when the entry's policy runs" in capsys.readouterr().err
    method = methods(root)["mine"]
    assert (rate(method), method.levels["nominal"]) == (0.0, None)
    # Without a policy it is what it says, and has no rank.
    content = {**entry.file.model_dump(mode="json"), "policies": []}
    (entry.folder / "entry.yaml").write_text(json.dumps(content))
    assert verify(root, "mine", "--quiet") == 0
    method = methods(root)["mine"]
    assert method.self_reported and (method.rank, method.score) == (None, None)
    assert method.levels["nominal"] is not None


@needs_gl
@pytest.mark.slow  # renders
def test_clips_show_fresh_scenes_once_they_are_public(root, capsys):
    av = pytest.importorskip("av")
    pytest.importorskip("PIL")
    write_entry(root, "expert", {"policy": "expert"}, track="privileged")
    assert verify(root, "expert", "--quiet") == 0
    page = ["page", str(root), "--protocol", str(root / "tiny.yaml"), "--clips", "--quiet"]
    page += ["--output", str(root / "page.html")]
    assert main(page) == 2
    assert "End it first with --publish" in capsys.readouterr().err
    assert main([*page, "--publish"]) == 0
    (video,) = re.findall(r"data:video/mp4;base64,([^\"]*)", (root / "page.html").read_text())
    with av.open(io.BytesIO(base64.b64decode(video))) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert frames[0].std() > 10 and (frames[0] != frames[-1]).any()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no policy": ({"policies": []}, "has no policy and no results. Name a policy"),
    "another track": ({"track": "images", "policies": [{"policy": "zero"}]}, "Write track: keyp"),
    "unknown task": ({"policies": [{"policy": "zero", "tasks": ["hamer"]}]}, "hammer"),
    "no checkpoint": ({}, "safetensors"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_run_is_one_error_before_anything_is_run(root, capsys, name):
    changes, reason = WRONG[name]
    entry = write_entry(root, "mine")
    content = {**entry.file.model_dump(mode="json"), **changes}
    (entry.folder / "entry.yaml").write_text(json.dumps(content))
    assert verify(root, "mine") == 2
    assert reason in capsys.readouterr().err
    assert not (root / HOST).exists()  # no seed is drawn for it


def test_who_comes_or_changes_after_the_draw_waits_for_the_next_round(root, capsys):
    """Who learns of the seed in the meantime has no policy in its scenes."""
    entry = write_entry(root, "early", {"policy": "zero"})
    assert verify(root, "early", "--quiet") == 0
    write_entry(root, "late", {"policy": "random"})
    assert verify(root, "late") == 2
    assert "late was submitted or changed after the seed" in capsys.readouterr().err
    content = {**entry.file.model_dump(mode="json"), "policies": [{"policy": "random"}]}
    (entry.folder / "entry.yaml").write_text(json.dumps(content))
    assert verify(root, "early") == 2
    assert "--new-round" in capsys.readouterr().err
    assert methods(root)["early"].rank is None
    assert verify(root, "late", "--new-round", "--quiet") == 0
    assert methods(root)["late"].rank == 1
    assert verify(root, "early", "--quiet") == 0


def test_a_folder_that_is_no_entry_says_what_to_do(root, expert, capsys):
    assert main(["verify", str(expert / "result")]) == 2
    assert "no entry.yaml, so there is no policy to run. Write this file" in capsys.readouterr().err
    entry = write_entry(root, "mine", {"policy": "zero"})
    entry.folder.rename(root / "mine")
    assert main(["verify", str(root / "mine")]) == 2
    assert "Move it to DIR/entries/mine" in capsys.readouterr().err
    assert not (root / HOST).exists()
