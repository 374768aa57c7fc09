"""Folders of records and of runs, strict JSON, and the versions of packages."""

import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.processes import run_python

from fleet_tools.config.values import Value
from fleet_tools.errors import DatasetError, PolicyError
from fleet_tools.registration import TOOL_USE
from fleet_tools.storage.locked_folder import AppendLog, Document, read_version
from fleet_tools.storage.provenance import UNKNOWN, installed_packages, other_versions
from fleet_tools.storage.record_folder import RecordKind, RecordWriter, read_records
from fleet_tools.storage.run_folder import RunKind, RunWriter
from fleet_tools.storage.strict_json import MAX_CHARACTERS, MAX_DEPTH, loads


class Plan(Document):
    """A document whose note may differ within one folder."""

    schema_version: int = 1
    goal: str
    tools: tuple[str, ...] = ()
    note: str = ""

    def essence(self) -> dict[str, object]:
        """Returns all but the note."""
        return {"the goal": self.goal, "the tools": list(self.tools)}


class Whole(Document):
    """A document of which nothing may differ."""

    goal: str
    note: str = ""


class Step(Value):
    """A record."""

    number: int


class Line(Value):
    """A record of a log."""

    number: int
    text: str


PLANS = RecordKind(
    what="a plan",
    maker="make plan",
    error=DatasetError,
    document=Plan,
    document_name="plan.json",
    version=1,
    record=Step,
    log_name="steps.jsonl",
    subfolders=("files",),
)
HOUSE = Plan(goal="a house")


def write(folder: Path, *numbers: int, plan: Plan = HOUSE) -> list[int]:
    """Appends records, and returns the numbers of all records."""
    with RecordWriter(PLANS, folder, plan) as writer:
        for number in numbers:
            writer.append(Step(number=number))
    assert writer.records == PLANS.read_records(folder)[0]
    return [step.number for step in writer.records]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


# --- Documents ------------------------------------------------------------------------------


def test_documents_differ_in_their_essence_which_is_everything_unless_they_say_otherwise():
    assert HOUSE.differences(HOUSE.model_copy(update={"note": "urgent"})) == []
    other = Plan(goal="a shed", tools=("saw",))
    assert HOUSE.differences(other) == [
        "the goal is 'a house', not 'a shed'",
        "the tools is [], not ['saw']",
    ]
    assert other.differences(HOUSE)[0] == "the goal is 'a shed', not 'a house'"
    document = Whole(goal="a house")
    assert document.essence() == {"goal": "a house", "note": ""}
    assert document.differences(Whole(goal="a house", note="urgent")) == [
        "note is '', not 'urgent'"
    ]


# --- Folders --------------------------------------------------------------------------------


def test_new_folder_holds_the_document_the_log_and_the_subfolders(tmp_path):
    folder = tmp_path / "new" / "plan"
    assert write(folder) == []
    assert sorted(contents(folder)) == ["files", "plan.json", "steps.jsonl"]
    assert PLANS.read_document(folder) == HOUSE
    assert (folder / "plan.json").read_text() == HOUSE.model_dump_json(indent=2) + "\n"


def test_records_are_appended_across_writers(tmp_path):
    assert write(tmp_path, 1, 2) == [1, 2]
    assert write(tmp_path, 3) == [1, 2, 3]
    assert (tmp_path / "steps.jsonl").read_text() == '{"number":1}\n{"number":2}\n{"number":3}\n'


def test_what_a_crash_leaves_is_repaired(tmp_path):
    write(tmp_path / "one", 1)
    with (tmp_path / "one" / "steps.jsonl").open("ab") as log:
        log.write(b'{"numb')
    (tmp_path / "one" / "files" / ".file.7.aside.bin").write_bytes(b"half")
    assert [step.number for step in PLANS.read_records(tmp_path / "one")[0]] == [1]
    assert write(tmp_path / "one", 2) == [1, 2]
    write(tmp_path / "other", 1, 2)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_interrupted_creation_is_begun_again(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "steps.jsonl").touch()
    (tmp_path / ".plan.7.aside.json").write_text("{")
    assert write(tmp_path, 1) == [1]
    assert not list(tmp_path.rglob("*.aside*"))


def test_document_is_replaced_and_the_records_stay(tmp_path):
    urgent = HOUSE.model_copy(update={"note": "urgent"})
    write(tmp_path, 1)
    with RecordWriter(PLANS, tmp_path, HOUSE) as writer:
        writer.replace_document(urgent)
    assert PLANS.read_document(tmp_path) == urgent
    assert write(tmp_path) == [1]


# --- What is refused ------------------------------------------------------------------------


def test_another_document_is_refused_and_the_folder_is_left_as_it_is(tmp_path):
    write(tmp_path, 1)
    with (tmp_path / "steps.jsonl").open("ab") as log:
        log.write(b"torn")
    before = contents(tmp_path)
    match = "already holds a plan with other options: the goal is 'a house', not 'a shed'"
    with pytest.raises(DatasetError, match=match):
        write(tmp_path, 2, plan=Plan(goal="a shed"))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["thesis.tex", "files/thesis.tex", "steps.jsonl"])
def test_folder_of_something_else_is_left_as_it_is(tmp_path, name):
    (tmp_path / "files").mkdir()
    (tmp_path / name).write_text("Years of work.")
    before = contents(tmp_path)
    with pytest.raises(DatasetError, match=r"not empty and is not a plan\. Give another --output"):
        write(tmp_path)
    assert contents(tmp_path) == before


def test_one_writer_at_a_time(tmp_path):
    with (
        RecordWriter(PLANS, tmp_path, HOUSE),
        pytest.raises(DatasetError, match="Another process is writing"),
    ):
        write(tmp_path)
    assert write(tmp_path, 1) == [1]


def test_damaged_log_releases_the_folder(tmp_path):
    write(tmp_path, 1)
    log = tmp_path / "steps.jsonl"
    log.write_bytes(b"damaged\n" + log.read_bytes())
    for _ in range(2):  # the second time, too, it is not in use
        with pytest.raises(DatasetError, match=r"steps\.jsonl:1 is damaged"):
            write(tmp_path)


def test_folder_without_a_document_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(DatasetError, match=r"is not a plan: it has no plan\.json.*`make plan`"):
        PLANS.read_document(tmp_path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused(tmp_path, version):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"schema_version": version, "goal": "a house"}))
    assert read_version(path, DatasetError) == version
    with pytest.raises(DatasetError, match=rf"schema version {version!r}; .* reads 1\."):
        PLANS.read_document(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "3", "[" * 100_000, '{"schema_version": 1}'),
        '{"schema_version": 1, "goal": NaN}',
        '{"schema_version": 1, "goal": "a", "goal": "b"}',
        '{"schema_version": 1, "goal": "a", "salt": 1}',
    ],
)
def test_a_damaged_document_is_named(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(DatasetError, match=r"plan\.json"):
        PLANS.read_document(tmp_path)


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


def test_damaged_record_is_named_with_its_line(tmp_path):
    path = tmp_path / "log.jsonl"
    for line, content in ((2, b'{"number":1,"text":"a"}\n{"number":2}\n'), (1, b"\xff\n")):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match=rf"log\.jsonl:{line} is damaged"):
            read_records(path, Line, DatasetError)


def test_missing_log_is_named_with_what_it_is_needed_for_and_not_created(tmp_path):
    with pytest.raises(DatasetError, match=r"log\.jsonl cannot be read: .* copy; it counts"):
        read_records(tmp_path / "log.jsonl", Line, DatasetError, "; it counts")
    with pytest.raises(FileNotFoundError):
        AppendLog(tmp_path / "log.jsonl")
    assert not list(tmp_path.iterdir())


# --- Appending --------------------------------------------------------------------------------

TEXTS = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), max_size=5)


def a_log(folder: Path, content: bytes = b"") -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(content)
    return path


@given(TEXTS, TEXTS)
def test_lines_are_appended_in_order_also_after_reopening(first, second):
    with tempfile.TemporaryDirectory() as folder:
        path = a_log(Path(folder))
        for lines in (first, second):
            log = AppendLog(path)
            for line in lines:
                log.append(line)
            log.close()
        assert path.read_bytes().decode().split("\n") == [*first, *second, ""]


def test_another_process_cannot_write_until_the_log_is_closed(tmp_path):
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


SHORT_LINES = st.lists(st.text("ab", max_size=2), max_size=4)


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


@given(SHORT_LINES, SHORT_LINES, st.binary(max_size=3).filter(lambda torn: b"\n" not in torn))
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
    with pytest.raises(PolicyError, match=r"already holds a run .* seed is 0, not 1"):
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


NUMBERS = st.integers(-(10**99), 10**99) | st.floats(allow_nan=False, allow_infinity=False)
SHAPES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(SHAPES)
@example(-(10**99))  # a sign is no digit
def test_what_json_writes_is_read(data):
    assert loads(json.dumps(data)) == data


@given(st.integers(1, 2 * MAX_DEPTH), st.sampled_from(["[", '{"a":']), st.text('[{\\"]}'))
def test_depth_is_counted_outside_of_strings(depth, opening, text):
    closing = "]" if opening == "[" else "}"
    data = opening * depth + json.dumps(text * 100) + closing * depth
    if depth <= MAX_DEPTH:
        assert json.dumps(loads(data)).replace(" ", "") == data
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            loads(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**6, "nested too deeply"),
        ('{"a":' * 10**5, "nested too deeply"),
        ("9" * 101, "an integer has 101 digits"),
        ("9" * 10**6, "an integer has 1,000,000 digits"),
        ("1e400", "too large a number"),
        ("[NaN]", "NaN is not a number"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' is given 2 times"),
        (" " * (MAX_CHARACTERS + 1), "16,000,001 characters"),
        ("", "Expecting value"),
    ],
    ids=lambda value: value[:8],
)
def test_what_has_no_reading_or_exceeds_the_bounds_is_refused_at_once(text, message):
    started = time.process_time()
    with pytest.raises(ValueError, match=message) as error:
        loads(text)
    assert time.process_time() - started < 2.0
    assert len(str(error.value)) < 1000


def test_what_is_installed_does_not_differ_from_itself_and_all_else_does():
    packages = TOOL_USE.packages
    here = installed_packages([*packages, "not-installed-by-pip"])
    assert here["not-installed-by-pip"] == UNKNOWN and UNKNOWN not in {here[p] for p in packages}
    assert other_versions(here) == {}
    assert other_versions(here | {"drake": "1.0"}) == {"drake": ("1.0", here["drake"])}
    assert other_versions({"not-installed-by-pip": "1.0"}) == {
        "not-installed-by-pip": ("1.0", None)
    }
