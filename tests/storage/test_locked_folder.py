"""Append-only logs: lines are added whole or not at all, by one process at a time."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import run_python

from fleet_tools.storage.locked_folder import AppendLog

LINES = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), max_size=5)


def a_log(folder: Path, content: bytes = b"") -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(content)
    return path


@settings(max_examples=30)
@given(LINES, LINES)
def test_lines_are_appended_in_order_also_after_reopening(first, second):
    with tempfile.TemporaryDirectory() as folder:
        path = a_log(Path(folder))
        for lines in (first, second):
            log = AppendLog(path)
            for line in lines:
                log.append(line)
            log.close()
        assert path.read_bytes().decode().split("\n") == [*first, *second, ""]


def test_another_process_cannot_write_until_the_log_is_closed(tmp_path: Path):
    path = a_log(tmp_path)
    code = """
import json, sys
from pathlib import Path
from fleet_tools.storage.locked_folder import AppendLog
try:
    AppendLog(Path(sys.argv[1])).append("other")
    print(json.dumps("written"))
except BlockingIOError:
    print(json.dumps("refused"))
"""
    log = AppendLog(path)
    with pytest.raises(BlockingIOError):
        AppendLog(path)  # nor can the same process twice
    assert run_python(code, str(path)) == "refused"
    log.close()
    assert run_python(code, str(path)) == "written"
    assert path.read_bytes() == b"other\n"


def test_missing_log_is_not_created(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        AppendLog(tmp_path / "log.jsonl")
    assert not list(tmp_path.iterdir())
