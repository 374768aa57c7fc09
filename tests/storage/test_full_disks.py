"""Whatever room a disk has, a file is stored whole or not at all, and one error says why."""

import errno
import os
import pickle
import subprocess
from collections.abc import Callable

import pytest
from support.folders import contents
from support.small_datasets import Drawn, a_header, write
from support.small_disks import PAGE, Disk, SmallDisk

from fleet_tools.errors import DiskError
from fleet_tools.storage.atomic_files import (
    atomic_write,
    is_blank,
    leftovers,
    replace_folder,
    temporary_in,
    write_file,
)
from fleet_tools.storage.locked_folder import AppendLog
from fleet_tools.storage.tensor_files import write_tensors
from fleet_tools.utils.disk_errors import disk_error


def stored_in_every_room(
    disk: Disk, pages: int, store: Callable[[], None], before: dict[str, bytes]
) -> list[str]:
    """Stores something in each room of 0 to `pages` pages, where `before` is on the disk.

    Returns:
        The messages of the errors.
    """
    messages = []
    for page in range(pages + 1):
        with disk.room(page * PAGE):
            try:
                store()
            except DiskError as error:
                messages.append(str(error))
                assert contents(disk.folder) == before
            else:
                break
    store()  # the same command once there is room
    assert contents(disk.folder) != before
    assert 0 < len(messages) <= pages
    return messages


def test_a_file_is_replaced_whole_or_not_at_all(disk):
    file, content = disk.folder / "file.txt", "é" * (2 * PAGE)
    write_file(file, "the last one")
    messages = stored_in_every_room(
        disk, 5, lambda: write_file(file, content), {"file.txt": b"the last one"}
    )
    assert all(f"{file} cannot be stored" in each for each in messages)
    assert all("it needs 16.4 kB" in each for each in messages)
    if disk.mounted:
        assert f"4.1 kB of 8.19 kB are free in {disk.folder}" in messages[1]
    assert file.read_text(encoding="utf-8") == content


def test_what_a_library_writes_is_cut_off_nowhere(disk):
    file = disk.folder / "image.bin"

    def store() -> None:
        with atomic_write(file) as aside, aside.open("wb") as opened:
            assert leftovers(disk.folder) == [aside]
            for _ in range(6):
                opened.write(bytes(PAGE // 2))
                opened.flush()

    messages = stored_in_every_room(disk, 4, store, {})
    assert "it needs more than 4.1 kB" in messages[1]
    assert file.stat().st_size == 3 * PAGE


def test_a_folder_is_replaced_whole_or_not_at_all(disk):
    folder, files = disk.folder / "model", {"a/mesh.obj": bytes(5000), "model.sdf": bytes(PAGE)}
    replace_folder(folder, {"model.sdf": b"<sdf/>"})
    before = {"model/model.sdf": b"<sdf/>"}
    messages = stored_in_every_room(disk, 5, lambda: replace_folder(folder, files), before)
    assert all(f"{folder} cannot be stored" in each for each in messages)
    assert all("it needs 9.1 kB" in each for each in messages)
    assert contents(folder) == files


def test_a_log_has_complete_lines_only(disk):
    path = disk.folder / "log.jsonl"
    path.write_text("first\n")
    log = AppendLog(path)
    messages = stored_in_every_room(
        disk, 3, lambda: log.append("x" * 2 * PAGE), {"log.jsonl": b"first\n"}
    )
    log.close()
    assert all(f"{path} cannot be stored" in each for each in messages)
    assert set(path.read_text().splitlines()) == {"first", "x" * 2 * PAGE}


def test_on_a_disk_without_inodes_nothing_is_left_behind(disk):
    if not isinstance(disk, SmallDisk):
        pytest.skip("no file system can be mounted here")
    files = {name: b"text" for name in ("a", "b", "c")}
    failed = 0
    for inodes in range(10):
        with disk.room(1 << 20, inodes=inodes):
            try:
                replace_folder(disk.folder / "model", files)
            except DiskError as error:
                failed += 1
                assert "no space is left" in str(error)
                assert list(disk.folder.iterdir()) == []
            else:
                break
    assert failed == 5  # a temporary folder, the folder in it, and three files
    assert contents(disk.folder / "model") == files


def test_a_read_only_disk_says_so(disk):
    if not isinstance(disk, SmallDisk):
        pytest.skip("no file system can be mounted here")
    write_file(disk.folder / "file", b"the last one")
    with disk.read_only(), pytest.raises(DiskError, match="Read-only file system"):
        write_file(disk.folder / "file", b"another")
    assert contents(disk.folder) == {"file": b"the last one"}


def test_a_dataset_has_complete_episodes_in_every_room(disk, tmp_path):
    drawn = Drawn([5, 0, 9, 3], [True, False, True, True], seed=3, labelled=True)
    write(tmp_path / "undisturbed", drawn, a_header())
    expected, rooms, folder = contents(tmp_path / "undisturbed"), 0, disk.folder
    for room in range(0, 40 * PAGE, PAGE):
        folder = disk.folder / str(room)
        with disk.room(room):
            try:
                write(folder, drawn, a_header())
            except OSError as error:
                assert isinstance(disk_error(error), DiskError)
            else:
                break
        stored = contents(folder) if folder.exists() else {}
        complete = stored.get("manifest.jsonl", b"").splitlines()
        assert stored.keys() <= expected.keys()
        assert complete == expected["manifest.jsonl"].splitlines()[: len(complete)]
        rooms += 1
    assert rooms > (5 if disk.mounted else 1)
    assert contents(folder) == expected


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    of_others = [".writing_x.1", f".writing_y.{dead.pid}", ".writing_x.notes", f".x.{dead.pid}"]
    for name in of_others:
        (tmp_path / name).touch()
    for process in (dead.pid, os.getpid()):
        left = tmp_path / f".writing_x.{process}" / "data"
        left.mkdir(parents=True)
        (left / "0.0").write_bytes(bytes(PAGE))
    with temporary_in(tmp_path, tmp_path / "x") as aside:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(of_others)
        aside.write_text("new")
        aside.rename(tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*of_others, "x"])


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "no space is left on its disk"),
        (errno.EDQUOT, "Disk quota exceeded"),
        (errno.EFBIG, "File too large"),
        (errno.EROFS, "Read-only file system"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_an_error_names_file_and_cause(number, message, tmp_path):
    path = tmp_path / "absent" / "file"
    raised = OSError(number, os.strerror(number), str(path))
    for error in (disk_error(raised), disk_error(raised, path, 2_500_000)):
        assert isinstance(error, DiskError)
        assert str(error).startswith(f"{path} cannot be stored: ") and message in str(error)
        again = pickle.loads(pickle.dumps(error))  # as workers send it
        assert type(again) is DiskError and str(again) == str(error)
    assert "it needs 2.5 MB" in str(error)


def test_other_errors_of_the_system_stay_what_they_are(tmp_path):
    for path, error in (
        (tmp_path / "absent/file", FileNotFoundError),
        (tmp_path, IsADirectoryError),
    ):
        with pytest.raises(error):
            write_file(path, b"")


def test_folder_is_blank_that_holds_only_what_an_interrupted_creation_leaves(tmp_path):
    names = ("log", "files")
    assert is_blank(tmp_path, names)
    (tmp_path / "log").touch()
    (tmp_path / "files").mkdir()
    (tmp_path / ".document.7.aside.json").write_text("{")
    assert is_blank(tmp_path, names)
    assert not is_blank(tmp_path, ("log",))
    (tmp_path / "log").write_text("a line\n")
    assert not is_blank(tmp_path, names)
    assert not is_blank(tmp_path / "log", names)
    assert not is_blank(tmp_path / "missing", names)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_the_umask_decides_who_may_read(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "text") as aside:
            aside.write_text("text")
        torch = pytest.importorskip("torch")
        write_tensors(tmp_path / "tensors", {"a": torch.ones(2)}, None)
        replace_folder(tmp_path / "model", {"model.sdf": b"<sdf/>"})
    finally:
        os.umask(before)
    for path in ("text", "tensors", "model/model.sdf"):
        assert (tmp_path / path).stat().st_mode & 0o777 == mode
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o777 & ~umask
