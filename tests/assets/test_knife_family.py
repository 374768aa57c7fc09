"""Knives: they fit the hand, and their edge is where they say."""

from dataclasses import replace

import numpy as np
import pytest
from family_laws import family_laws

from fleet_tools.assets.families import knife
from fleet_tools.assets.families.grip import GRIP, GRIP_END
from fleet_tools.assets.model import Model


def check(model: Model) -> None:
    (link,) = model.links
    handle, bolster, blade = link.parts
    assert knife.MASSES[0] <= model.mass <= knife.MASSES[1]

    # The handle fills the fingers where it is held, and nothing else is there.
    x, y, z = handle.solid.vertices.T
    assert x.min() < -GRIP_END and np.abs(y).max() == pytest.approx(GRIP)
    assert np.hypot(y, z).max() < 0.017
    assert min(part.solid.vertices[:, 0].min() for part in (bolster, blade)) > GRIP_END

    # The blade is felt as it is seen: a symmetric wedge that thins out towards its edge.
    (felt,) = blade.collision
    assert felt is blade.solid
    edge, spine, heel, tip = (
        np.array(model.keypoints[key].position) for key in ("edge", "spine", "heel", "tip")
    )
    bottom = felt.vertices[felt.vertices[:, 2] > edge[2] - 1e-9]
    top = felt.vertices[felt.vertices[:, 2] < spine[2] + 1e-9]
    assert len(bottom) == len(top) == 4
    assert 0 < np.ptp(bottom[:, 1]) < 0.0011 < np.ptp(top[:, 1]) < 0.0041
    np.testing.assert_allclose(felt.vertices[:, 1].mean(), 0, atol=1e-12)

    # Heel to tip is the edge, parallel to the handle; from the spine to the edge, away from it.
    np.testing.assert_allclose(edge, (heel + tip) / 2, atol=1e-9)
    assert heel[2] == tip[2] and tip[0] - heel[0] > 0.08
    assert np.array_equal((edge - spine)[:2], [0, 0]) and edge[2] - spine[2] > 0.03


test_shipped, test_random = family_laws(knife, check)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"butt_x": 0.01}, "butt_x < -GRIP_END"),
        ({"edge": 0.002}, "edge < spine"),
        ({"depth": 0.015}, "spine_z < depth"),
        ({"nose_x": 0.08}, "middle of the edge below the spine"),
    ],
)
def test_impossible_measures_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        replace(knife.CATALOGUE["chef"], **change)
