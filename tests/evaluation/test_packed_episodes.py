"""Episodes as compressed columns: no bit is lost, no kill loses one, and no file is believed."""

import fcntl
import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.evaluated import TRIALS, a_result, an_episode

from fleet_tools.envs.contact_metrics import ContactMetrics, Load
from fleet_tools.envs.outcomes import SUCCESS, WORKER_ERROR
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.packed_episodes import read_episodes, write_episodes
from fleet_tools.evaluation.result import EpisodeResult, encode_actions
from fleet_tools.evaluation.result_folder import (
    EPISODES,
    PACKED,
    RESULT,
    EvaluationWriter,
    load_evaluation,
)
from fleet_tools.storage import parquet_file
from fleet_tools.storage.locked_folder import AppendLog
from fleet_tools.storage.record_folder import read_records

# --- What is stored is read -------------------------------------------------------------------

TEXTS = st.text(max_size=9)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LENGTHS = st.floats(0, 1e300)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3),
    max_leaves=9,
)


@st.composite
def results(draw: st.DrawFn) -> EpisodeResult:
    """Draws any result of an episode."""
    shape = st.tuples(st.integers(0, 3), st.just(6))
    actions = draw(arrays.arrays(np.float32, shape, elements=arrays.from_dtype(np.dtype("f4"))))
    text = st.none() | TEXTS
    success = draw(st.booleans())
    points = st.lists(st.tuples(FLOATS, FLOATS, FLOATS), max_size=2).map(tuple)
    loads = st.builds(Load, peak_N=LENGTHS)
    metrics = st.builds(ContactMetrics, object=loads, table_work_J=FLOATS, time_s=LENGTHS)
    return EpisodeResult(
        tool=draw(text),
        object=draw(text),
        scene_digest=draw(text),
        error=draw(text),
        tries=draw(st.integers(1, 2)),
        task=draw(TEXTS),
        split=draw(TEXTS),
        index=draw(st.integers(0, 2**63 - 1)),
        seed=draw(st.integers(0, 2**63 - 1)),
        outcome=SUCCESS if success else draw(TEXTS.filter(lambda each: each != SUCCESS)),
        success=success,
        success_once=success or draw(st.booleans()),
        steps=len(actions),
        state_digest=draw(TEXTS),
        actions=encode_actions(actions),
        seconds=draw(LENGTHS),
        info=draw(st.dictionaries(TEXTS, JSON, max_size=2)),
        final_points_m=draw(st.none() | st.dictionaries(TEXTS, points, max_size=2)),
        contact_metrics=draw(st.none() | metrics),
    )


@given(st.lists(results(), max_size=3))
def test_columns_hold_what_lines_of_the_log_hold(tmp_path_factory, episodes):
    folder = tmp_path_factory.mktemp("packed")
    assert write_episodes(folder / PACKED, episodes)
    (folder / EPISODES).write_text("".join(f"{each.to_json()}\n" for each in episodes))
    expected, _ = read_records(folder / EPISODES, EpisodeResult, ResultError)
    read = read_episodes(folder / PACKED)
    assert [each.to_json() for each in read] == [each.to_json() for each in expected]
    assert read == expected


def test_episodes_that_exceed_the_bounds_stay_in_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "MAX_UNPACKED", 5000)
    large = an_episode(TRIALS[0]).model_copy(update={"info": {"note": "x" * 9000}})
    huge = an_episode(TRIALS[0]).model_copy(update={"seed": 2**70})
    for episode in (large, huge):
        assert not write_episodes(tmp_path / PACKED, [episode])
    with EvaluationWriter(tmp_path / "result", a_result()) as writer:
        writer.append(large)
        writer.finish()
    assert names(tmp_path / "result") == ["episodes.jsonl", "result.json"]
    assert load_evaluation(tmp_path / "result").episodes == [large]


# --- Kills, and resumption --------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    """Returns the names of all files below a folder."""
    return sorted(path.name for path in folder.iterdir())


def run(folder: Path, count: int) -> None:
    """Runs an evaluation until it has so many episodes, or resumes it."""
    with EvaluationWriter(folder, a_result()) as writer:
        present = {each.key for each in writer.records}
        for trial in TRIALS[:count]:
            if trial.key not in present:
                writer.append(an_episode(trial))
        writer.finish()


def test_a_log_gives_way_to_columns_when_an_evaluation_ends_and_comes_back_with_it(tmp_path):
    folder = tmp_path / "result"
    for count in (2, 2, 5, len(TRIALS)):
        run(folder, count)
        assert names(folder) == ["episodes.parquet", "result.json"]
        assert len(load_evaluation(folder).episodes) == count
        with EvaluationWriter(folder, a_result()) as writer:
            assert len(writer.records) == count
            assert {*names(folder)} == {"episodes.jsonl", "episodes.parquet", "result.json"}
    assert len(load_evaluation(folder).episodes) == len(TRIALS)


def test_an_episode_after_the_end_stays(tmp_path):
    with EvaluationWriter(tmp_path, a_result()) as writer:
        writer.append(an_episode(TRIALS[0]))
        writer.finish()
        writer.append(an_episode(TRIALS[1]))
    assert len(load_evaluation(tmp_path).episodes) == 2


def run_and_die(folder: Path, told: Path, moment: int) -> bool:
    """Runs an evaluation in a child that is killed at a system call; returns whether it ended.

    Args:
        folder: Folder of the evaluation.
        told: File for the number of episodes that the writer has acknowledged.
        moment: Number of the call.
    """
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    left, append = moment, EvaluationWriter.append

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def run_or_die(*args: Any, **others: Any) -> Any:
            nonlocal left
            left -= 1
            return os._exit(9) if left < 0 else call(*args, **others)

        return run_or_die

    def telling(self: EvaluationWriter, record: EpisodeResult) -> None:
        append(self, record)
        told.write_text(str(len(self.records)))

    EvaluationWriter.append = telling
    for name in ("replace", "unlink", "fsync", "write", "ftruncate"):
        setattr(os, name, dying(getattr(os, name)))
    try:
        run(folder, 3)
    finally:
        os._exit(0)


@pytest.mark.parametrize("begun", [0, 2])
def test_a_kill_at_any_moment_loses_no_episode_that_had_ended(tmp_path, begun):
    moment, ended = 0, False
    while not ended:
        folder, told = tmp_path / f"{moment}", tmp_path / f"told{moment}"
        told.write_text(str(begun))
        if begun:
            run(folder, begun)
        ended = run_and_die(folder, told, moment)
        if (folder / RESULT).exists():
            assert len(load_evaluation(folder).episodes) >= int(told.read_text())
        else:
            assert told.read_text() == "0"
        run(folder, 3)
        assert names(folder) == ["episodes.parquet", "result.json"]
        assert len(load_evaluation(folder).episodes) == 3
        moment += 1
    assert moment > 15


def test_a_log_that_another_process_has_just_packed_is_not_written_to(tmp_path, monkeypatch):
    (tmp_path / EPISODES).touch()
    lock = fcntl.flock

    def slow(descriptor: int, operation: int) -> None:
        (tmp_path / EPISODES).unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with pytest.raises(BlockingIOError):
        AppendLog(tmp_path / EPISODES)


def test_a_folder_without_episodes_is_damaged(tmp_path):
    run(tmp_path, 2)
    (tmp_path / PACKED).unlink()
    with pytest.raises(ResultError, match="cannot be read"):
        load_evaluation(tmp_path)
    with pytest.raises(OSError, match=EPISODES):
        run(tmp_path, 3)


# --- Files that are not valid -----------------------------------------------------------------


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of all episodes of an evaluation, some with errors."""
    path = tmp_path_factory.mktemp("whole") / PACKED
    lost = {"error": "gone: \N{SNOWMAN}", "actions": "", "steps": 0, "state_digest": None}
    episodes = [an_episode(trial, steps=40) for trial in TRIALS[:7]]
    episodes[1] = an_episode(TRIALS[1], WORKER_ERROR).model_copy(update=lost)
    assert write_episodes(path, episodes)
    return path


@given(at=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_changes_nothing(whole, at, bit):
    content = bytearray(whole.read_bytes())
    content[at % len(content)] ^= 1 << bit
    changed = whole.with_name("changed")
    changed.write_bytes(content)
    try:
        assert read_episodes(changed) == read_episodes(whole)
    except ResultError as error:
        assert str(error).startswith(f"{changed} is damaged: ") and len(str(error)) < 1000


@given(size=st.integers(0))
def test_a_file_that_is_cut_is_damaged(whole, size):
    content, cut = whole.read_bytes(), whole.with_name("cut")
    cut.write_bytes(content[: size % len(content)])
    with pytest.raises(ResultError, match="cut is damaged"):
        read_episodes(cut)


def columns_of(whole: Path) -> dict[str, list[Any]]:
    """Returns the columns of a file by name."""
    return pq.read_table(whole).to_pydict()


def stored(path: Path, table: pa.Table, **changes: Any) -> Path:
    """Stores a table as results are, but for some options."""
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": False,
        "write_statistics": False,
        "store_schema": False,
        "write_page_checksum": True,
    }
    pq.write_table(table, path, **options | changes)
    return path


def table_of(whole: Path, **columns: Any) -> pa.Table:
    """Returns the table of a file in which some columns have other values of the same type."""
    table = pq.read_table(whole)
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(name)
        table = table.set_column(place, field, pa.array(values, field.type))
    return table


LARGE = "x" * 3_000_000
DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.append_column("score", pa.array([1.0] * len(t))), "it also has 'score'"),
        (lambda t: t.drop_columns("seed"), "it lacks 'seed'"),
        (lambda t: t.select(t.column_names[::-1]), "their order differs"),
        (lambda t: t.append_column("seed", t["seed"]), "its columns differ"),
        (lambda t: t.set_column(2, "index", t["index"].cast("int32")), "expected of 'index'"),
        (lambda t: t.set_column(2, "index", t["index"]), "another type is expected of 'index'"),
        (
            lambda t: t.set_column(12, "actions", t["actions"].cast(pa.list_(pa.float64()))),
            "another type is expected of 'actions'",
        ),
        (
            lambda t: t.set_column(0, "task", pa.array([[{"a": ["b"]}]] * len(t))),
            "another type is expected of 'task'",
        ),
        (lambda t: pa.table({"x" * 9000: [1]}), "it lacks"),
        (lambda t: pa.table({f"x{k}": [1] for k in range(500)}), "is damaged"),
    ],
)
def test_other_columns_are_named(whole, tmp_path, change, message):
    path = stored(tmp_path / PACKED, change(pq.read_table(whole)))
    with pytest.raises(ResultError, match=message) as raised:
        read_episodes(path)
    assert str(raised.value).startswith(f"{path} is damaged") and len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"info": ["{}"] * 6 + ["{"]}, "episode 7 is damaged: Expecting property name"),
        ({"info": ["{}"] * 6 + ['{"a": 1, "a": 2}']}, "the key 'a' is given 2 times"),
        ({"info": [DEEP] * 7}, "episode 1 is damaged: it is nested too deeply"),
        ({"info": ["[]"] * 7}, "info: "),
        ({"contact_metrics": ['{"time_s": NaN}'] * 7}, "NaN is not a number"),
        ({"seconds": [float("nan")] * 7}, "seconds: "),
        ({"index": [-1] * 7}, "index: "),
        ({"steps": [39] * 7}, "differs from the number of steps, 39"),
        ({"actions": [[0.0]] * 7}, "cannot reshape array of size 1"),
        ({"success": [False] * 7}, "success is False"),
    ],
)
def test_values_that_no_episode_has_are_refused(whole, tmp_path, columns, message):
    path = stored(tmp_path / PACKED, table_of(whole, **columns))
    with pytest.raises(ResultError, match=message):
        read_episodes(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "gzip"}, "task has another compression"),
        ({"compression": "none"}, "task has another compression"),
        ({"use_dictionary": True}, "task has another storage type"),
        ({"column_encoding": {"task": "DELTA_BYTE_ARRAY"}}, "task has a page of another encoding"),
        ({"data_page_version": "2.0"}, "task has a page of another kind"),
        ({"row_group_size": 3}, "more than one row group"),
        ({"store_schema": True}, "unexpected metadata"),  # which could name classes to unpickle
    ],
    ids=str,
)
def test_files_that_are_stored_otherwise_are_refused(whole, tmp_path, options, message):
    path = stored(tmp_path / PACKED, pq.read_table(whole), **options)
    with pytest.raises(ResultError, match=message):
        read_episodes(path)


def test_text_is_utf_8(whole, tmp_path):
    table = pq.read_table(whole)
    task = pa.array([b"\xff\xfe"] * 7).view(pa.string())
    path = stored(tmp_path / PACKED, table.set_column(0, table.schema.field("task"), task))
    with pytest.raises(ResultError, match="UTF8"):
        read_episodes(path)


def _rows_of_another(path: Path, whole: Path) -> None:
    stored(path, pa.table({"error": pa.nulls(10**7, pa.string())}))


def _rows(path: Path, whole: Path) -> None:
    stored(path, pa.concat_tables([pq.read_table(whole)] * 40_000))


def _repeated_text(path: Path, whole: Path) -> None:
    stored(path, table_of(whole, error=[LARGE * 8] * 7))


def _long_list(path: Path, whole: Path) -> None:
    table = table_of(whole, actions=[np.zeros(6_000_000, np.float32)] + [[]] * 6)
    stored(path, table)


def _lying_pages(path: Path, whole: Path) -> None:
    """Pages that claim more bytes than the footer does."""
    stored(path, table_of(whole, error=[LARGE] * 7), data_page_size=1, write_batch_size=1)
    content = bytearray(path.read_bytes())
    pages = 0
    for page in re.finditer(rb"\x15\x00\x15([\x80-\xff]{3}[\x01-\x7f])", content):
        content[page.start(1) : page.end(1)] = b"\xfe\xff\xff\x7f"
        pages += 1
    assert pages > 1
    path.write_bytes(content)


def _lying_footer(path: Path, whole: Path) -> None:
    """A footer that claims four gigabytes."""
    path.write_bytes(whole.read_bytes()[:-8] + b"\xff\xff\xff\xffPAR1")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_rows_of_another, "its columns differ"),
        (_rows, "more than 4,194,304 values"),
        (_repeated_text, "bytes when decompressed"),
        (_long_list, "more than 4,194,304 values"),
        (_lying_pages, "bytes when decompressed"),
        (_lying_footer, "last bytes are not those of a Parquet file"),
        (lambda path, whole: os.truncate(shutil.copy(whole, path), 2**40), "at most 67,108,864"),
        (lambda path, whole: path.write_bytes(b""), "last bytes"),
        (lambda path, whole: path.write_bytes(b"PAR1" * 9), "last bytes|is damaged"),
        (lambda path, whole: path.write_text(json.dumps({"task": "hammer"})), "last bytes"),
        (lambda path, whole: path.mkdir(), "not a file|directory"),
        (lambda path, whole: os.mkfifo(path), "not a file"),
        (lambda path, whole: path.symlink_to(path), "symbolic links"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_files_that_lie_about_their_size_take_no_memory(whole, tmp_path, make, message):
    make(tmp_path / PACKED, whole)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ResultError, match=message):
        read_episodes(tmp_path / PACKED)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
