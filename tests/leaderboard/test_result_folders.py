"""Folders of results: what lies in them, whose they are, and which are copies."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.submitted import SMALL, evaluation_with, random_evaluation, renamed, write

from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.leaderboard.submissions import read_submissions

GENUINE = random_evaluation(0.5, seed=1, name="theirs")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    return write(GENUINE, tmp_path / "results" / "theirs")


@pytest.mark.parametrize(
    ("readme", "content", "expected"),
    [
        ("mine/0/README.md", b"# Nearest", "Nearest"),
        ("mine/README.md", b"\n\n## A  <b>method</b>\r\n\nMore.", "A <b>method</b>"),
        ("mine/README.md", b"\xff\x00\x1b[31m red", "\ufffd[31m red"),
        ("mine/README.md", b"", ""),
        ("mine/README.md", b"x" * 10**6, "x" * 300),
        ("README.md", b"# All results", ""),
        ("other/README.md", b"# Another", ""),
    ],
)
def test_the_heading_of_the_nearest_readme_describes_a_method(tmp_path, readme, content, expected):
    write(renamed(GENUINE, "mine"), tmp_path / "mine" / "0")
    (tmp_path / readme).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / readme).write_bytes(content)
    if readme == "mine/0/README.md":
        (tmp_path / "mine" / "README.md").write_text("# Above")
    (accepted,), rejections = read_submissions(tmp_path, [SMALL])
    assert (accepted.description, rejections) == (expected, [])


def test_foreign_files_and_links_are_rejected_with_their_results(folder, tmp_path):
    (folder.parent / "README.md").write_text("Comments.")
    assert read_submissions(folder.parent, [SMALL])[1] == []
    (folder / "run.sh").write_text("rm")
    write(renamed(GENUINE, "other"), folder.parent / "other" / "deeper")
    (folder.parent / "linked").symlink_to(tmp_path)
    accepted, rejections = read_submissions(folder.parent, [SMALL])
    assert [submission.folder for submission in accepted] == ["other/deeper"]
    assert {(rejection.folder, rejection.kind) for rejection in rejections} == {
        ("theirs", "foreign"),
        (".", "foreign"),
    }


def test_a_copy_is_rejected_and_another_training_run_is_not(folder, tmp_path):
    another = evaluation_with(lambda trial: SUCCESS, "theirs", training_seed=3)
    write(another, tmp_path / "all" / "theirs" / "another")
    for name in ("first", "second"):
        shutil.copytree(folder, tmp_path / "all" / "theirs" / name)
    accepted, rejections = read_submissions(tmp_path / "all", [SMALL])
    assert [each.folder for each in accepted] == ["theirs/another", "theirs/first"]
    assert [(each.folder, each.kind) for each in rejections] == [("theirs/second", "duplicate")]


def test_a_result_with_other_cameras_is_no_copy_and_those_are_known(tmp_path):
    noisy: dict[str, Any] = {"obs_mode": "point_cloud", "sensors": "active_stereo"}
    write(GENUINE, tmp_path / "theirs" / "ideal")
    seen = random_evaluation(0.4, seed=2, name="theirs", **noisy)
    folder = write(seen, tmp_path / "theirs" / "noisy")
    accepted, rejected = read_submissions(tmp_path, [SMALL])
    assert [each.policy.label for each in accepted] == ["theirs", "theirs (active_stereo)"]
    assert not rejected
    text = (folder / RESULT).read_text()
    (folder / RESULT).write_text(text.replace("active_stereo", "perfect_stereo"))
    accepted, rejected = read_submissions(tmp_path, [SMALL])
    assert [each.policy.label for each in accepted] == ["theirs"]
    (rejection,) = rejected
    assert rejection.kind == "damaged" and "perfect_stereo" in rejection.reason


def test_a_missing_folder_is_an_error_and_an_empty_one_is_not(tmp_path):
    with pytest.raises(ResultError, match="no folder"):
        read_submissions(tmp_path / "nowhere", [SMALL])
    assert read_submissions(tmp_path, [SMALL]) == ([], [])
