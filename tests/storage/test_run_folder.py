"""Folders of runs: claimed by one process, with a log that follows from the state."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.errors import PolicyError
from fleet_tools.storage.locked_folder import Document
from fleet_tools.storage.run_folder import RunKind, RunWriter

LINES = st.lists(st.text("ab", max_size=2), max_size=4)


class Spec(Document):
    """The specification of a run."""

    version: int = 1
    seed: int


RUNS = RunKind(
    what="a run",
    maker="make run",
    error=PolicyError,
    document=Spec,
    version=1,
    log_name="log",
    state_key="a_run",
)


def writer_of(folder: Path, seed: int = 0) -> RunWriter[Spec]:
    return RunWriter(RUNS, folder, Spec(seed=seed))


@settings(max_examples=40)
@given(LINES, LINES, st.binary(max_size=3).filter(lambda torn: b"\n" not in torn))
def test_the_log_becomes_the_given_lines_whatever_it_was(tmp_path_factory, before, lines, torn):
    folder = tmp_path_factory.mktemp("run")
    with writer_of(folder) as writer:
        writer.write_log(before)
        with (folder / "log").open("ab") as log:
            log.write(torn)
        writer.write_log(lines)
    assert (folder / "log").read_text() == "".join(f"{line}\n" for line in lines)


def test_the_same_run_is_resumed_and_another_is_refused(tmp_path):
    with writer_of(tmp_path / "run") as writer:
        assert writer.document == RUNS.read_document(tmp_path / "run")
        with pytest.raises(PolicyError, match="Another process is writing"):
            writer_of(tmp_path / "run")
    (tmp_path / "run" / ".state.7.aside.bin").write_bytes(b"half")
    writer_of(tmp_path / "run").close()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "log"]
    with pytest.raises(PolicyError, match=r"already holds a run, .* seed is 0, not 1"):
        writer_of(tmp_path / "run", seed=1)


@pytest.mark.parametrize(
    "content",
    [None, "{", "[]", '{"seed": 0}', '{"version": 2, "seed": 0}', '{"version": 1, "seed": "x"}'],
)
def test_damaged_specification_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(PolicyError, match=r"config\.json"):
        RUNS.read_document(tmp_path)
