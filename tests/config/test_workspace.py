"""The workspace: a box, its border included."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.geometry import TABLE_UPPER_M, Workspace
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError

POINTS = st.tuples(st.floats(-0.2, 0.9), st.floats(-0.8, 0.7), st.floats(-5, 5))
SHARES = st.tuples(*[st.floats(0, 1)] * 3)


@st.composite
def workspaces(draw: st.DrawFn) -> Workspace:
    lower = draw(POINTS)
    sizes = [draw(st.floats(0.01, 3)) for _ in range(3)]
    ends = (*TABLE_UPPER_M, math.inf)
    upper = tuple(min(low + d, end) for low, d, end in zip(lower, sizes, ends, strict=True))
    return parse(Workspace, {"lower_m": lower, "upper_m": upper}, "drawn")


@given(workspaces(), SHARES)
def test_a_mixture_of_its_corners_is_inside(workspace: Workspace, shares: tuple):
    corners = zip(workspace.lower_m, workspace.upper_m, shares, strict=True)
    assert workspace.contains([min(max((1 - s) * a + s * b, a), b) for a, b, s in corners])


@given(workspaces(), SHARES, st.integers(0, 2), st.sampled_from([1e-9, 1.0, 1e300, math.inf]))
def test_a_point_beyond_one_face_is_outside(workspace, shares, k, beyond):
    corners = zip(workspace.lower_m, workspace.upper_m, shares, strict=True)
    point = [(1 - s) * a + s * b for a, b, s in corners]
    for outside in (workspace.lower_m[k] - beyond, workspace.upper_m[k] + beyond, math.nan):
        point[k] = outside
        assert not workspace.contains(point)


@given(POINTS, POINTS)
def test_only_boxes_with_an_inside_are_accepted(lower: tuple, upper: tuple):
    given_values = {"lower_m": lower, "upper_m": upper}
    if all(a < b for a, b in zip(lower, upper, strict=True)):
        assert parse(Workspace, given_values, "drawn").lower_m == lower
    else:
        with pytest.raises(ConfigError, match="lower_m must be below upper_m"):
            parse(Workspace, given_values, "drawn")
