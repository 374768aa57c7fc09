"""JSON documents with versions and their upgrades, and logs of JSON records."""

import json
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.values import Value
from fleet_tools.errors import DatasetError
from fleet_tools.storage.record_folder import (
    read_document,
    read_records,
    read_version,
    rename_keys,
)

KEYS = st.text("abcdef", min_size=1, max_size=2)
OBJECTS = st.dictionaries(KEYS, st.integers())


class Recipe(Value):
    """A document whose version 1 had `flour_g` and version 2 `flour`; version 3 has `steps`."""

    schema_version: Literal[3] = 3
    flour: float
    steps: tuple[str, ...]


class Line(Value):
    """A record of a log."""

    number: int
    text: str


def from_1(data: dict[str, Any]) -> dict[str, Any]:
    return rename_keys(data, {"flour_g": "flour"}) | {"schema_version": 2}


def from_2(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "steps": [], "schema_version": 3}


def a_file(folder: Path, content: str) -> Path:
    path = folder / "file.json"
    path.write_text(content)
    return path


def read(path: Path) -> Recipe:
    return read_document(path, Recipe, 3, DatasetError, {1: from_1, 2: from_2})


# --- Documents ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        {"schema_version": 1, "flour_g": 500.0},
        {"schema_version": 2, "flour": 500.0},
        {"schema_version": 3, "flour": 500.0, "steps": []},
    ],
)
def test_document_of_every_version_is_upgraded_to_the_present_one(
    tmp_path: Path, data: dict[str, Any]
):
    path = a_file(tmp_path, json.dumps(data))
    assert read_version(path, DatasetError) == data["schema_version"]
    assert read(path) == Recipe(flour=500.0, steps=())
    assert json.loads(path.read_text()) == data  # the file stays as it is


@pytest.mark.parametrize("version", [0, 4, "1", None])
def test_other_versions_are_refused(tmp_path: Path, version: Any):
    path = a_file(tmp_path, json.dumps({"schema_version": version, "flour": 1.0, "steps": []}))
    with pytest.raises(DatasetError, match=rf"schema version {version!r}; .* 1, 2 and 3\."):
        read(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        '{"schema_version": 3, "flour": NaN, "steps": []}',
        '{"schema_version": 3, "flour": 1, "flour": 2, "steps": []}',
        '{"schema_version": 3, "flour": 1}',
        '{"schema_version": 3, "flour": 1, "steps": [], "salt": 1}',
        '{"schema_version": 1, "flour_g": 1, "flour": 2}',
        "[" * 100_000,
    ],
)
def test_damaged_document_is_named(tmp_path: Path, content: str):
    with pytest.raises(DatasetError, match=r"file\.json"):
        read(a_file(tmp_path, content))


def test_missing_document_is_named(tmp_path: Path):
    for function in (read, lambda path: read_version(path, DatasetError)):
        with pytest.raises(DatasetError, match=r"file\.json"):
            function(tmp_path / "file.json")


def test_document_without_a_version_has_none(tmp_path: Path):
    assert read_version(a_file(tmp_path, '{"flour": 1}'), DatasetError) is None
    assert read_version(a_file(tmp_path, "[1]"), DatasetError) is None


@given(OBJECTS, st.dictionaries(KEYS, KEYS))
def test_renaming_keys_keeps_values_and_never_overwrites(data, names):
    names = {old: new for old, new in names.items() if new not in names}
    unique = {old: new for new, old in {new: old for old, new in names.items()}.items()}
    renamed = rename_keys(data, unique)
    assert sorted(renamed.values()) == sorted(data.values())
    for key, value in data.items():
        new = unique.get(key, key)
        assert renamed[key if new in data else new] == value


# --- Logs -----------------------------------------------------------------------------------

LINES = st.lists(st.builds(Line, number=st.integers(), text=st.text()), max_size=5)


@given(LINES, st.data())
def test_records_are_those_whose_lines_are_complete(lines, data):
    encoded = [line.to_json().encode() + b"\n" for line in lines]
    content = b"".join(encoded)
    end = data.draw(st.integers(0, len(content)))  # where a crash tore it
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(content[:end])
        records, size = read_records(path, Line, DatasetError)
    complete = content[:end].count(b"\n")
    assert records == lines[:complete]
    assert size == sum(map(len, encoded[:complete]))


def test_damaged_record_is_named_with_its_line(tmp_path: Path):
    path = a_file(tmp_path, '{"number":1,"text":"a"}\n{"number":2}\n')
    with pytest.raises(DatasetError, match=r"file\.json:2 is damaged"):
        read_records(path, Line, DatasetError)
    path.write_bytes(b"\xff\n")
    with pytest.raises(DatasetError, match=r"file\.json:1 is damaged"):
        read_records(path, Line, DatasetError)


def test_missing_log_is_named_with_what_it_is_needed_for(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"log\.jsonl cannot be read: .* copy; it counts"):
        read_records(tmp_path / "log.jsonl", Line, DatasetError, "; it counts")
