"""Hammers: they fit the hand, and the striking face is at its keypoint."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.family_laws import family_laws
from support.surfaces import surface_points

from fleet_tools.assets.families import hammer
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP


def check(model: ModelDescription) -> None:
    (link,) = model.links
    assert hammer.MASS_BOUNDS[0] <= model.mass <= hammer.MASS_BOUNDS[1]
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, _, z = surface = surface_points(solid).T
            assert not np.any((np.abs(x) < 0.035) & (z < -0.02)), part.name
            held = surface[1:, np.abs(x) < 0.035]
            assert np.all(np.abs(held) <= GRIP + 1e-9), part.name
            if part.name == "handle" and solid is part.solid:
                assert np.abs(held[0]).max() == pytest.approx(GRIP)

    head, tail, side = (np.array(model.keypoints[k].position) for k in ("head", "tail", "side"))
    assert np.array_equal((head - side)[:2], [0, 0]) and head[2] > 0 > side[2]
    assert 0.12 < head[0] < 0.22 and tail[0] < -0.04

    # In both geometries, the striking face is the highest part, flat, and centred on its keypoint.
    (striker,) = [part for part in link.parts if part.name == "striker"]
    for solid in (striker.solid, *striker.collision):
        face = solid.vertices[solid.vertices[:, 2] > head[2] - 1e-9]
        assert len(face) >= 8 and np.ptp(face[:, 2]) < 1e-12
        np.testing.assert_allclose(face.mean(axis=0), head, atol=1e-12)
        assert solid.vertices[:, 2].max() == face[0, 2]


test_shipped, test_random = family_laws("hammer", check)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peen": "bill"}, "'bill'.*ball"),
        ({"neck_y": 0.02}, "neck_y < cheek_y"),
        ({"butt_x": 0.01}, "butt_x"),
        ({"peen_z": 0.02}, "peen_z behind the cheek"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(hammer.CATALOGUE["ball_peen"], **change)
