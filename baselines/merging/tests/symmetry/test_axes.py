"""Axis strings: reading inverts writing, and syntax errors are explained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_merging.errors import AxisSyntaxError
from fleet_merging.symmetry.axes import Factor, format_axes, parse_axes

SIZES = st.none() | st.integers(1, 99)
FIXED = st.builds(Factor, st.sampled_from(["_", "_in", "_hw"]), SIZES)


@st.composite
def products(draw):
    free = draw(st.lists(st.sampled_from(["h", "c1", "layer0.k"]), unique=True, max_size=3))
    factors = [Factor(name, draw(SIZES)) for name in free]
    if factors and draw(st.booleans()):
        factors.append(Factor("inner", draw(SIZES), owner=factors[0].name))
    factors += draw(
        st.lists(FIXED, min_size=not factors, max_size=2, unique_by=lambda factor: factor.name)
    )
    return tuple(factors)


AXES = st.lists(st.lists(products(), min_size=1, max_size=3).map(tuple), max_size=4).map(tuple)


@given(AXES)
def test_reading_inverts_writing(axes):
    assert parse_axes(format_axes(axes)) == axes


@pytest.mark.parametrize(
    "text", ["h1 h1", "(_gate:4 h0) _in", "(_qkv:3 head:4 _k) res", "h (c1 _hw:4)", ""]
)
def test_writing_inverts_reading(text):
    assert format_axes(parse_axes(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("h1 (c", r"character 4.*never closed"),
        ("h1)", r"character 3.*outside of parentheses"),
        ("a | b", "outside of parentheses"),
        ("(a (b c))", "not nested"),
        ("()", "a name is missing"),
        ("(a | )", "a name is missing"),
        ("h-1", "'h-1' is not an axis; write h, h:64"),
        ("4", "is not an axis"),
        ("h:0", "at least 1"),
        ("h:x", "is not an axis"),
        ("(head _k@head)", "'_k' is fixed"),
        ("(h h)", "twice in one product"),
        ("(_k _k)", "twice in one product"),
        ("(k@head head)", r"no owner before it; .* \(head k@head\)"),
        ("(head | _) k@head", "no owner before it"),
    ],
)
def test_syntax_errors_show_the_text_and_the_reason(text, reason):
    with pytest.raises(AxisSyntaxError, match=reason) as error:
        parse_axes(text)
    assert repr(text) in str(error.value)
