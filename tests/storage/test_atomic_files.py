"""Files that appear complete or not at all."""

import os
from pathlib import Path

import pytest

from fleet_tools.storage.atomic_files import atomic_write, is_blank, replace_folder
from fleet_tools.storage.tensor_files import write_tensors


def test_folder_is_blank_that_holds_only_what_an_interrupted_creation_leaves(
    tmp_path: Path,
) -> None:
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
def test_the_umask_decides_who_may_read(umask: int, mode: int, tmp_path: Path) -> None:
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
