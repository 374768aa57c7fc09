"""Wrenches: they fit the hand, and every one of them fits every nut."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.assets.families import nut, wrench
from fleet_tools.assets.families.grip import GRIP, GRIP_END
from fleet_tools.assets.families.wrench_params import PAD, WrenchParams
from fleet_tools.assets.solids import Solid

seeds = st.integers(0, 2**32 - 1)


def sampled(family, seed):
    return family.sample(np.random.default_rng(seed))


def points(solid: Solid, per_edge: int = 8) -> np.ndarray:
    """(n, 3) points all over the surface."""
    weights = np.array([(i, j, per_edge - i - j) for i in range(per_edge + 1)
                        for j in range(per_edge + 1 - i)]) / per_edge  # fmt: skip
    return np.einsum("wc,tci->twi", weights, solid.vertices[solid.triangles]).reshape(-1, 3)


def gap(solid: Solid, p: np.ndarray) -> float:
    """How far outside a convex solid the innermost of some points (n, 3) is; negative: inside."""
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.einsum("ti,nti->nt", normals, p[:, None] - a).max(axis=1).min()


def check(params: WrenchParams) -> None:
    model = wrench.build(params, "any")
    (link,) = model.links
    assert wrench.MASSES[0] <= model.mass <= wrench.MASSES[1]
    widest = 0.0
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, y, z = points(solid).T
            held = np.abs(x) < GRIP_END
            assert not np.any(held & (np.abs(z) > 0.02)), part.name  # nor does it touch the palm
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


def check_fit(tool: WrenchParams, params: nut.NutParams) -> None:
    """In the middle of the jaw, a nut touches nothing, and its flats are close to both pads."""
    object = nut.build(params, "any")
    body = next(part for part in object.links[1].parts if part.name == "nut")
    centre = np.array(object.keypoints["nut"].position)
    surface = points(body.collision[0]) - centre  # flats
    clearance = 2 * PAD - 2 * params.half
    assert 0.0009 < clearance < 0.0015
    surface[:, 2] = 0.0  # a jaw is as wide at every height
    p_T = surface @ tool.R_TJ.T + tool.p_TJ
    pieces = [
        (part.name, piece)
        for part in wrench.build(tool, "any").links[0].parts
        for piece in part.collision
    ]
    gaps = {name: gap(piece, p_T) for name, piece in pieces}
    assert min(gaps.values()) > 0.0004, gaps
    nearest = sorted(gap(piece, p_T) for name, piece in pieces if name in ("head", "slide"))
    np.testing.assert_allclose(nearest[:2], clearance / 2, atol=1e-6)
    # The jaw is above the base, or above the flange.
    assert centre[2] - tool.thickness > params.levels[1]


@pytest.mark.parametrize("name", wrench.CATALOGUE)
def test_shipped(name):
    check(wrench.CATALOGUE[name])


@pytest.mark.parametrize("name", wrench.CATALOGUE)
def test_every_wrench_fits_every_nut(name):
    for params in nut.CATALOGUE.values():
        check_fit(wrench.CATALOGUE[name], params)


@settings(max_examples=20)
@given(seeds, seeds)
def test_random(seed, other):
    check(sampled(wrench, seed))
    check_fit(sampled(wrench, seed), sampled(nut, other))


@pytest.mark.parametrize(
    ("change", "named"),
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
def test_impossible_measures_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        replace(WrenchParams(), **change)
