"""The short run of the fuzzing, and the laws of what it is made of."""

import copy
import json
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("websockets")
pytest.importorskip("manifold3d")

from hypothesis import given
from hypothesis import strategies as st
from support.fuzz_subjects import ENDS, each_end

from fleet_tools.__main__ import PROGRAMS
from fuzz.kinds import KINDS
from fuzz.kinds_programs import LINES
from fuzz.kinds_programs import NOT_TRIED as PROGRAMS_NOT_TRIED
from fuzz.kinds_texts import VARIABLES, VARIABLES_NOT_TRIED
from fuzz.mutations import changed_data, changed_json, changed_text, nudged_data
from fuzz.readers import NOT_TRIED, TRIED, reading_modules, variables_of_the_package
from fuzz.running import (
    DEFECTS,
    Kind,
    Outcome,
    as_table,
    attempt,
    distributed,
    generator_of,
    is_clean,
)
from fuzz.running import trials as trials_of

SEEDS = st.integers(0, 2**32)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=15,
)


CHEAP = 2.0
"""Smallest share of kinds of which some trials belong to the quick suite."""


@pytest.mark.parametrize(
    ("kind", "trials"),
    [
        pytest.param(kind, count, marks=marks, id=f"{kind.name}, {count}")
        for kind in KINDS.values()
        for count, marks in ((5, ()), (kind.quick, pytest.mark.slow))
        if kind.share >= CHEAP or marks
    ],
)
def test_no_input_leads_to_a_defect(kind, trials, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subject = kind.open(tmp_path)
    try:
        ended = [attempt(kind, subject, 0, number) for number in range(trials)]
    finally:
        subject.close()
    assert [each for each in ended if each.outcome in DEFECTS] == []
    assert {each.outcome for each in ended} >= {Outcome.TYPED}


def test_every_module_that_reads_is_tried_by_a_kind_or_says_why_not():
    assert reading_modules() == TRIED.keys() | NOT_TRIED.keys()
    assert not TRIED.keys() & NOT_TRIED.keys()
    assert set(TRIED.values()) <= KINDS.keys()


def test_every_program_and_every_variable_is_tried_or_says_why_not():
    programs = {line.split()[0] for line in LINES}
    assert programs | PROGRAMS_NOT_TRIED.keys() == PROGRAMS.keys()
    assert not programs & PROGRAMS_NOT_TRIED.keys()
    own = {name for name in VARIABLES if name.startswith("FLEET_TOOLS_")}
    assert variables_of_the_package() == own | VARIABLES_NOT_TRIED.keys()


def test_every_end_of_a_trial_is_noticed():
    kind = Kind("for tests", each_end, 1.0, 1)
    expected = dict(
        zip(ENDS, (*list(Outcome)[:2], Outcome.TRACEBACK, Outcome.TAKEN, *[None] * 2), strict=True)
    ) | {"die": Outcome.TRACEBACK, "hang": Outcome.HANG}
    drawn = [ENDS[int(generator_of(kind.name, 34, n).integers(len(ENDS)))] for n in range(7)]
    assert set(drawn) == set(ENDS)
    ended = list(trials_of(kind, 34, range(7), wait_s=2.0))
    assert [each.number for each in ended] == list(range(7))
    assert [each.outcome for each in ended] == [expected[each] for each in drawn]
    assert ended[drawn.index("die")].detail == "the process ended with exit code 3"


def test_shares_add_up_and_the_table_counts():
    ranges = distributed(list(KINDS.values()), 100_000)
    assert abs(sum(map(len, ranges.values())) - 100_000) < len(KINDS)
    counts = {"a": Counter({Outcome.ACCEPTED: 1200}), "b": Counter({Outcome.TYPED: 3})}
    *_, last = as_table(counts).splitlines()
    assert last == "| all | 1,203 | 1,200 | 3 | 0 | 0 | 0 |"
    assert is_clean(counts)
    for outcome in DEFECTS:
        assert not is_clean({**counts, "c": Counter({outcome: 1})})


@given(PLAIN, SEEDS)
def test_changes_of_data_leave_the_data_alone_and_are_the_same_again(data, seed):
    before = copy.deepcopy([data, 1])
    given_data = [data, 1]
    for change in (changed_data, nudged_data):
        one, other = (change(given_data, np.random.default_rng(seed)) for _ in range(2))
        assert repr(one) == repr(other)
        assert given_data == before


@given(PLAIN, SEEDS)
def test_every_json_can_be_changed(data, seed):
    text = json.dumps(data)
    generator = np.random.default_rng(seed)
    assert isinstance(changed_json(text, generator), bytes)
    assert isinstance(changed_text(text, generator, ("x",)), str)
