"""Nuts: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import heights, part_of, points_of
from support.model_defects import collision_changed, keypoints_moved, part_scaled, prism

from fleet_tools.assets.families import nut
from fleet_tools.assets.model_description import ModelDescription


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    base, turned = model.links
    body = part_of(turned, "nut")
    centre, left, right = points_of(model, "nut", "left", "right")
    assert left[1] - right[1] == pytest.approx(nut.FLATS, abs=nut.DEVIATION + 1e-6)
    np.testing.assert_allclose((left + right) / 2, centre, atol=1e-12)
    assert np.array_equal(centre[:2], [0, 0])
    # In both geometries, the flats are plane and vertical, and the keypoints are at mid-height.
    for solid in (body.solid, body.collision[0]):
        on_flat = solid.vertices[np.abs(solid.vertices[:, 1] - left[1]) < 1e-9]
        low, high = on_flat[:, 2].min(), on_flat[:, 2].max()
        assert high - low >= 0.019 - 1e-9
        assert centre[2] == pytest.approx((low + high) / 2)
    assert base.parts[0].solid.vertices[:, 2].min() == 0
    top, foot = model.keypoints["top"], model.keypoints["base"]
    highest = max(heights(link, part.name).max() for link in model.links for part in link.parts)
    (link_of_top,) = [link for link in model.links if link.name == top.link]
    assert link_of_top.origin[2] + top.position[2] == pytest.approx(highest)
    assert foot.position == (0, 0, 0) and top.position[:2] == (0, 0)


MEMBER = "hex_nut"

BAD_MODELS = (
    BadModel("round", "nut", "hex_nut", collision_changed("nut", prism(16)),
             "width across corners by that across flats"),
    BadModel("off_the_flats", "nut", "hex_nut", keypoints_moved("left", by=(0.006, 0, 0)),
             "angle between right -> left and the flats' normal"),
    BadModel("slanted_flats", "nut", "hex_nut", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
    BadModel("large", "nut", "hex_nut",
             part_scaled("nut", 1.1, 1.1),
             "width across flats"),
)  # fmt: skip
