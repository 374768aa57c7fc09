"""What strangers may leave in the folder of results costs their own results only."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.submitted import SMALL, random_evaluation, renamed, verification, write

from fleet_tools.evaluation.result_folder import EPISODES, RESULT
from fleet_tools.leaderboard.board import Board, RankedLevel, make_rankings
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.records import VERIFIED, content_digest, write_verifications
from fleet_tools.leaderboard.result_folders import likeness, name_problem
from fleet_tools.leaderboard.submissions import read_submissions, without_refuted

OURS = random_evaluation(0.5, seed=1, name="ours")


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    """A folder with a result of ours, which the host has verified."""
    folder = write(OURS, tmp_path / "results" / "ours")
    record = verification("ours", content_digest=content_digest(folder))
    write_verifications(folder.parent, {"ours": record})
    return folder.parent


def stranger(root: Path, folder: str, name: str | None = None, **changes: object) -> Path:
    """Stores a result of another method."""
    return write(renamed(OURS, name or folder, **changes), root / folder)


def accepted_and_rejected(root: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the accepted folders, and the kind of problem of each other one, on a page."""
    submissions, rejections = read_submissions(root, [SMALL])
    board = Board(
        [RankedLevel(SMALL, "00")], make_rankings(submissions, [SMALL]), rejections=rejections
    )
    for text in (as_html(board), as_markdown(board)):
        text.encode()
    return [each.folder for each in submissions], {each.folder: each.kind for each in rejections}


def test_ours_is_accepted_and_verified(root):
    (ours,), rejections = read_submissions(root, [SMALL])
    assert ours.verified() and ours.verified(4) and not ours.verified(5)
    assert rejections == []


def test_a_result_that_has_changed_since_is_not_verified(root):
    with (root / "ours" / EPISODES).open("r+") as file:
        lines = file.readlines()
        file.seek(0)
        file.writelines(lines[::-1])
    (ours,), _ = read_submissions(root, [SMALL])
    assert ours.verification is None


def test_a_result_whose_episodes_end_otherwise_is_out(root):
    digest = content_digest(stranger(root, "forged"))
    refuted = verification("forged", same_outcome=3, content_digest=digest)
    other = refuted.model_copy(update={"other_versions": {"drake": ("1.0", "2.0")}})
    for record, expected in ((refuted, ["ours"]), (other, ["forged", "ours"])):
        write_verifications(root, {"forged": record})
        kept, _ = without_refuted(read_submissions(root, [SMALL])[0])
        assert [each.folder for each in kept] == expected
        assert not any(each.verified() for each in kept)
    write_verifications(root, {"forged": refuted})
    _, (rejection,) = without_refuted(read_submissions(root, [SMALL])[0])
    assert rejection.kind == "refuted"
    assert rejection.reason.startswith("1 of 4 episodes end otherwise when they run again: steps")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("aaa", "ours"),  # sorts before it
        ("ours2", "ours"),
        ("Ours", "Ours"),
        ("0urs", "0urs"),
        ("o_urs", "o_urs"),
        ("\u043eurs", "\u043eurs"),  # Cyrillic
        ("\uff4furs", "\uff4furs"),  # full width
        ("theirs", ""),
        ("theirs", " theirs"),
        ("theirs", "x" * 10**6),
        ("theirs", "<b>theirs</b>"),
        ("expert", "expert"),  # a policy of the package
    ],
)
def test_names_of_others_are_refused(root, folder, name):
    write(renamed(OURS, name), root / folder)
    assert accepted_and_rejected(root) == (["ours"], {folder: "name"})


def test_a_lookalike_that_sorts_first_does_not_displace_what_is_verified(root):
    stranger(root, "OURS")
    assert "OURS" < "ours"
    assert accepted_and_rejected(root) == (["ours"], {"OURS": "name"})
    (root / VERIFIED).unlink()
    assert accepted_and_rejected(root) == (["OURS"], {"ours": "name"})


def test_built_in_policies_have_their_names(root):
    stranger(root, "expert", kind="built_in", source="expert", track="privileged")
    assert accepted_and_rejected(root) == (["expert", "ours"], {})


def test_names_that_are_no_text_and_files_that_are_no_files_cost_themselves(root):
    folder = stranger(root, "theirs")
    (folder / EPISODES).unlink()
    os.mkfifo(folder / EPISODES)  # which nobody ever writes
    stranger(Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")), "odd")
    (root / "new\nline").mkdir()
    stranger(root / "elsewhere", "linked")
    (root / "linked").symlink_to(root / "elsewhere" / "linked")
    shutil.rmtree(root / "elsewhere")
    accepted, rejected = accepted_and_rejected(root)
    assert accepted == ["ours"]
    assert rejected == {"theirs": "foreign", ".": "foreign"}


def test_lone_surrogates_in_a_result_are_damage(root):
    folder = stranger(root, "theirs")
    text = (folder / RESULT).read_text()
    assert '"their_module:factory"' in text
    (folder / RESULT).write_text(text.replace('"their_module:factory"', r'"\ud800"'))
    assert accepted_and_rejected(root) == (["ours"], {"theirs": "damaged"})


def test_a_record_of_the_host_lies_at_the_root_only(root):
    shutil.copy(root / VERIFIED, stranger(root, "theirs") / VERIFIED)
    assert accepted_and_rejected(root) == (["ours"], {"theirs": "foreign"})


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True)


@given(NAMES)
def test_case_and_separators_make_no_other_name(name):
    assert likeness(name) == likeness(name.upper()) == likeness(name.replace("_", "-"))
    assert name_problem(name, "built_in", name) is None
    assert name_problem(name, "factory", name + "x") is not None
