"""Pairs of blocks: two bodies that touch along their seam and nowhere overlap."""

from dataclasses import replace

import numpy as np
import pytest
from family_laws import family_laws

from fleet_tools.assets.families import pair
from fleet_tools.assets.model import Model


def check(model: Model) -> None:
    assert not model.joints
    left, right = model.links
    assert (left.name, right.name) == ("left", "right")
    for link, side in ((left, 1), (right, -1)):
        (part,) = link.parts
        assert 0.03 <= link.mass_properties().mass <= 0.5
        for solid in (part.solid, *part.collision):
            x, y, z = (solid.vertices + link.origin).T
            assert z.min() == 0 and np.abs(x).max() < 0.05
            # Its own side of the seam; at the foot up to it, at the top clear of it.
            assert (side * y).min() == pytest.approx(0, abs=1e-9)
            assert (side * y)[z > 0].min() > 1e-5
        (felt,) = part.collision
        assert felt.vertices[:, 2].max() == part.solid.vertices[:, 2].max()
        # More than two triangles in the foot, which is what lets a block rest.
        assert np.sum(felt.vertices[:, 2] == 0) == 8

    points = {
        key: np.add(next(one for one in model.links if one.name == p.link).origin, p.position)
        for key, p in model.keypoints.items()
    }
    for side in ("left", "right"):
        np.testing.assert_allclose(points[f"{side}_seam"], 0, atol=1e-9)
        rise = points[side] - points[f"{side}_foot"]
        assert np.array_equal(rise[:2], [0, 0]) and rise[2] > 0.02
    assert points["left"][1] > 0 > points["right"][1]
    along = points["seam_end"] - points["left_seam"]
    assert along[0] > 0.015 and np.array_equal(along[1:], [0, 0])


test_shipped, test_random = family_laws(pair, check, examples=25)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"height": 0.06}, "higher than it is wide"),
        ({"draft_deg": 0.0}, "draft_deg"),
        ({"chamfer": 0.0}, "chamfer"),
        ({"bevel": 0.02}, "bevel"),
        ({"chamfer": 0.03}, "left at the top"),
    ],
)
def test_impossible_measures_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        replace(pair.CATALOGUE["tofu"], **change)
