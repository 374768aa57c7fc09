"""JSON has one reading, and bounds."""

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet_tools.storage.strict_json import MAX_CHARACTERS, MAX_DEPTH, loads

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
