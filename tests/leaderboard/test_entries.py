"""Entries: what a folder may hold, and what its policies are known by."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.submitted import write_entry

from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.leaderboard.entries import (
    ENTRY,
    likeness,
    read_entries,
    read_entry,
    without_imitations,
)

Change = Callable[[Path], object]
"""Changes the files of an entry's folder."""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    return write_entry(tmp_path, "theirs").folder


def edited(**changes: object) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / ENTRY).read_text())
        (folder / ENTRY).write_text(json.dumps({**content, **changes}))

    return change


def policy(name: str, **others: object) -> Change:
    return edited(policies=[{"policy": name, **others}])


def adding(name: str, content: str = "") -> Change:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    return change


def linking(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


TWICE = [{"policy": "zero"}, {"tasks": ["hammer"], "policy": "random"}]

WRONG: dict[str, tuple[Change, str]] = {
    "another's checkpoint": (policy("../ours/checkpoints/it.safetensors"), "expected checkpoints/"),
    "checkpoint elsewhere": (policy("/tmp/it.safetensors"), "expected checkpoints/"),
    "released checkpoint": (policy("fleet-tools/bc_hammer"), "expected checkpoints/"),
    "expert in turns": (policy("dagger:checkpoints/it.safetensors"), "expected checkpoints/"),
    "pickle": (policy("checkpoints/it.pt"), "expected checkpoints/"),
    "pickle beside it": (adding("checkpoints/it.pt"), "checkpoints/it.pt does not belong"),
    "installed module": (policy("os:system"), "expected checkpoints/"),
    "absent checkpoint": (policy("checkpoints/other.safetensors"), "there is no"),
    "absent module": (policy("policy:make"), "there is no"),
    "module of another name": (adding("numpy.py"), "numpy.py does not belong"),
    "two for one task": (edited(policies=TWICE), "two policies have the same training seed"),
    "no tasks": (policy("zero", tasks=[]), "tasks"),
    "forged record": (adding("verification.json", "{}"), "verification.json does not belong"),
    "forged host": (adding("host/theirs/verification.json", "{}"), "does not belong"),
    "record among results": (adding("results/nominal/verification.json"), "does not belong"),
    "linked checkpoint": (linking("checkpoints/it.safetensors", "/etc/passwd"), "is a link"),
    "linked folder": (linking("results", ".."), "is a link"),
    "pipe": (lambda folder: os.mkfifo(folder / "README.md"), "does not belong"),
    "other name": (edited(name="others"), "but its folder has another"),
    "name of the package's": (edited(name="expert"), "but its folder has another"),
    "path as a name": (edited(name="../theirs"), "name"),
    "two lines": (edited(title="It\nand more"), "single line"),
    "hidden characters": (edited(description="good\u202eevil"), "single line"),
    "own rank": (edited(rank=1), "rank"),
    "unknown track": (edited(track="everything"), "track"),
    "object": (adding(ENTRY, "!!python/object/apply:os.getcwd []"), "entry.yaml"),
    "no text": (lambda folder: (folder / ENTRY).write_bytes(b"\xff"), "entry.yaml"),
}


def test_a_whole_entry_is_read(folder):
    (entry,), rejections = read_entries(folder.parent.parent)
    assert (entry.name, rejections) == ("theirs", [])
    assert entry == read_entry(folder)
    (own,) = entry.file.policies
    assert entry.source(own) == str(folder / "checkpoints" / "it.safetensors")
    assert own.covers("hammer")


@pytest.mark.parametrize("name", WRONG)
def test_anything_else_is_refused_with_the_reason_and_costs_no_other_entry(folder, name):
    change, reason = WRONG[name]
    write_entry(folder.parent.parent, "ours")
    change(folder)
    with pytest.raises(ResultError, match=reason):
        read_entry(folder)
    kept, (rejection,) = read_entries(folder.parent.parent)
    assert [each.name for each in kept] == ["ours"]
    assert rejection.folder == "entries/theirs" and reason in rejection.reason


def test_a_folder_without_a_policy_says_what_to_do(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ResultError, match=r"no entry\.yaml, so there is no policy to run\. Write"):
        read_entry(tmp_path / "mine")
    with pytest.raises(ResultError, match=r"entries/NAME"):
        read_entries(tmp_path)


def test_a_link_to_an_entry_is_none(folder, tmp_path):
    (tmp_path / "entries" / "copy").symlink_to(folder)
    _, (rejection,) = read_entries(tmp_path)
    assert rejection.folder == "entries/copy" and "link" in rejection.reason


@given(st.binary(max_size=200))
def test_any_content_is_read_or_is_one_error(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("any")
    (folder / ENTRY).write_bytes(content)
    with pytest.raises(FleetToolsError):
        read_entry(folder)


def test_what_is_run_is_known_by_its_content(tmp_path):
    first = write_entry(tmp_path / "a", "it", content=b"weights")
    titled = write_entry(tmp_path / "b", "it", content=b"weights", title="Another title")
    other = write_entry(tmp_path / "c", "it", content=b"others")
    renamed = write_entry(tmp_path / "d", "that", content=b"weights")
    assert first.digest == titled.digest
    assert len({first.digest, other.digest, renamed.digest}) == 3
    assert [*first.contents.values()] == [*renamed.contents.values()]
    assert [*first.contents.values()] != [*other.contents.values()]
    seeded = write_entry(
        tmp_path / "e", "it", {"policy": "checkpoints/it.safetensors", "training_seed": 1},
        content=b"weights",
    )  # fmt: skip
    assert seeded.digest != first.digest
    assert [*seeded.contents.values()] == [*first.contents.values()]


def test_code_of_a_policy_is_part_of_its_content(tmp_path):
    entry = write_entry(tmp_path, "it", {"policy": "zero"})
    (entry.folder / "policy.py").write_text("from policy_nets import make\n")
    (entry.folder / "policy_nets.py").write_text("make = None\n")
    edited(policies=[{"policy": "policy:make"}])(entry.folder)
    before = read_entry(entry.folder).digest
    for name in ("policy_nets.py", "checkpoints/it.safetensors"):
        (entry.folder / name).write_text("changed")
        assert read_entry(entry.folder).digest != before
        before = read_entry(entry.folder).digest


@pytest.mark.parametrize(
    "name", ["The0dore", "the.odore", "The_odore", "theodore"]
)  # fmt: skip
def test_imitations_of_what_the_host_received_before_are_refused(tmp_path, name):
    entries = [write_entry(tmp_path, each) for each in ("Theodore", name)]
    kept, (rejection,) = without_imitations(entries, ["Theodore"])
    assert [each.name for each in kept] == ["Theodore"]
    assert rejection.folder == f"entries/{name}" and "'Theodore'" in rejection.reason


def test_a_title_that_imitates_another_is_refused_wherever_it_sorts(tmp_path):
    entries = [
        write_entry(tmp_path, "mlp", title="Keypoint MLP"),
        write_entry(tmp_path, "a", title="Keypoint  MLP".replace("  ", " ").replace("o", "0")),
    ]
    kept, (rejection,) = without_imitations(entries, ["mlp"])
    assert [each.name for each in kept] == ["mlp"] and rejection.folder == "entries/a"


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True))
def test_case_and_separators_make_no_other_name(name):
    for other in (name.upper(), name.replace("_", "-"), name.replace("-", ""), name.swapcase()):
        assert likeness(other) == likeness(name)
