"""Wrenches: they fit the hand, and every one of them fits every nut."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.surfaces import surface_points

from fleet_tools.assets.families import nut, wrench
from fleet_tools.assets.families.wrench.wrench_parts import PAD, WrenchParams
from fleet_tools.assets.parametric import GRIP, GRIP_END
from fleet_tools.assets.solids import Solid

seeds = st.integers(0, 2**32 - 1)


def random_wrench(seed: int) -> WrenchParams:
    return wrench.sample(np.random.default_rng(seed))


def random_nut(seed: int) -> nut.NutParams:
    return nut.sample(np.random.default_rng(seed))


def gap(solid: Solid, points: np.ndarray) -> float:
    """Returns the distance of the innermost of points (n, 3) outside a convex solid, m."""
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.einsum("ti,nti->nt", normals, points[:, None] - a).max(axis=1).min()


def check(params: WrenchParams) -> None:
    model = wrench.build(params, "any")
    (link,) = model.links
    assert wrench.MASS_BOUNDS[0] <= model.mass <= wrench.MASS_BOUNDS[1]
    widest = 0.0
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, y, z = surface_points(solid).T
            held = np.abs(x) < GRIP_END
            assert not np.any(held & (np.abs(z) > 0.02)), part.name  # clear of the palm
            assert np.all(np.abs(y[held]) <= GRIP + 1e-9), part.name
            widest = max(widest, np.abs(y[held]).max(initial=0.0))
    assert widest == pytest.approx(GRIP)

    jaw, left, right, upper, lower = (
        np.array(model.keypoints[name].position)
        for name in ("jaw", "left", "right", "upper", "lower")
    )
    np.testing.assert_allclose((left + right) / 2, jaw, atol=1e-12)
    assert np.linalg.norm(right - left) == pytest.approx(2 * PAD)
    assert (right - left)[1] > 0 and np.array_equal((upper - lower)[:2], [0, 0])
    assert upper[2] < lower[2]


def check_fit(wrench_params: WrenchParams, nut_params: nut.NutParams) -> None:
    """Checks that a nut in the middle of the jaw touches nothing, with both pads near its flats."""
    model = nut.build(nut_params, "any")
    body = next(part for part in model.links[1].parts if part.name == "nut")
    centre = np.array(model.keypoints["nut"].position)
    surface = surface_points(body.collision[0]) - centre  # flats
    clearance = 2 * PAD - 2 * nut_params.half
    assert 0.0009 < clearance < 0.0015
    surface[:, 2] = 0.0  # a jaw has the same width at every height
    p_T = surface @ wrench_params.R_TJ.T + wrench_params.p_TJ
    pieces = [
        (part.name, piece)
        for part in wrench.build(wrench_params, "any").links[0].parts
        for piece in part.collision
    ]
    gaps = [(name, gap(piece, p_T)) for name, piece in pieces]
    assert min(gap for _, gap in gaps) > 0.0004, gaps
    nearest = sorted(gap for name, gap in gaps if name in ("head", "slide"))
    np.testing.assert_allclose(nearest[:2], clearance / 2, atol=1e-6)
    # The jaw is above the base, or above the flange.
    assert centre[2] - wrench_params.thickness > nut_params.levels[1]


@pytest.mark.parametrize("name", wrench.CATALOGUE)
def test_shipped(name: str) -> None:
    check(wrench.CATALOGUE[name])


@pytest.mark.parametrize("name", wrench.CATALOGUE)
def test_every_wrench_fits_every_nut(name: str) -> None:
    for nut_params in nut.CATALOGUE.values():
        check_fit(wrench.CATALOGUE[name], nut_params)


@settings(max_examples=20)
@given(seeds, seeds)
def test_random(seed: int, nut_seed: int) -> None:
    check(random_wrench(seed))
    check_fit(random_wrench(seed), random_nut(nut_seed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tail": "hook"}, "tail one of plain, ring, fork"),
        ({"butt_x": -0.03}, "butt_x behind the grip"),
        ({"jaw_x": 0.10}, "fingers clear of the base"),
        ({"neck_z": 0.01}, "neck within the head"),
        ({"reach": 0.005}, "pads as long as"),
        ({"outer": 0.022}, "throat within the head"),
        ({"lips": True}, "lips without"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(WrenchParams(), **change)
