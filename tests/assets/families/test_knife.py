"""Knives: they fit the hand, and the edge is at its keypoints."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.family_laws import family_laws

from fleet_tools.assets.families import knife
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    (link,) = model.links
    handle, bolster, blade = link.parts
    assert knife.MASS_BOUNDS[0] <= model.mass <= knife.MASS_BOUNDS[1]

    # Only the handle is between the fingers, and it fills their opening.
    x, y, z = handle.solid.vertices.T
    assert x.min() < -GRIP_END and np.abs(y).max() == pytest.approx(GRIP)
    assert np.hypot(y, z).max() < 0.017
    assert min(part.solid.vertices[:, 0].min() for part in (bolster, blade)) > GRIP_END

    # Both geometries of the blade are the same symmetric wedge, thinner towards its edge.
    (collision,) = blade.collision
    assert collision is blade.solid
    edge, spine, heel, tip = (
        np.array(model.keypoints[key].position) for key in ("edge", "spine", "heel", "tip")
    )
    bottom = collision.vertices[collision.vertices[:, 2] > edge[2] - 1e-9]
    top = collision.vertices[collision.vertices[:, 2] < spine[2] + 1e-9]
    assert len(bottom) == len(top) == 4
    assert 0 < np.ptp(bottom[:, 1]) < 0.0011 < np.ptp(top[:, 1]) < 0.0041
    np.testing.assert_allclose(collision.vertices[:, 1].mean(), 0, atol=1e-12)

    # The edge from heel to tip is parallel to the handle, and further from it than the spine.
    np.testing.assert_allclose(edge, (heel + tip) / 2, atol=1e-9)
    assert heel[2] == tip[2] and tip[0] - heel[0] > 0.08
    assert np.array_equal((edge - spine)[:2], [0, 0]) and edge[2] - spine[2] > 0.03


test_shipped, test_random = family_laws("knife", check)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"butt_x": 0.01}, "butt_x < -GRIP_END"),
        ({"edge": 0.002}, "edge < spine"),
        ({"depth": 0.015}, "spine_z < depth"),
        ({"nose_x": 0.08}, "middle of the edge below the spine"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(knife.CATALOGUE["chef"], **change)
