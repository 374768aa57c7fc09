"""Screwdrivers: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import part_of, points_of, surface_points
from support.model_defects import keypoints_moved, part_scaled

from fleet_tools.assets.families import screwdriver
from fleet_tools.assets.families.screw import DEPTH, FLOOR, ROOM, SLOPE
from fleet_tools.assets.families.screwdriver import BLADE, SEAT, TIP
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    (link,) = model.links
    assert screwdriver.MASS_BOUNDS[0] <= model.mass <= screwdriver.MASS_BOUNDS[1]
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, y, z = surface_points(solid).T
            held = (np.abs(x) < GRIP_END) & (z < GRIP)
            assert np.all(np.abs(y[held]) <= GRIP + 1e-9), part.name
            assert z.min() > -0.02, part.name  # clear of the palm
    bit, left, right, back, flank = points_of(model, "bit", "left", "right", "back", "flank")
    np.testing.assert_allclose((left + right) / 2, bit, atol=1e-9)
    assert np.array_equal(bit[:2], back[:2]) and bit[2] > flank[2] > 0 > back[2]
    (nose,) = points_of(model, "nose")
    assert nose[0] >= GRIP_END and nose[0] > bit[0]
    # In a slot, in both geometries, the flanks lie on the walls before the end is on the floor.
    along = (right - left) / np.linalg.norm(right - left)
    across = np.cross([0.0, 0.0, 1.0], along)
    wedge = part_of(link, "bit").collision[0].vertices - bit
    assert np.abs(wedge @ along).max() <= ROOM - 0.001
    up, half = -wedge[:, 2], np.abs(wedge @ across)
    np.testing.assert_allclose(half, TIP + SLOPE * up, atol=1e-6)
    assert 0.0005 < SEAT < 0.001 and up.max() == pytest.approx(BLADE)
    np.testing.assert_allclose(half, FLOOR + SLOPE * (SEAT + up), atol=1e-6)
    assert BLADE + SEAT > DEPTH  # the walls bear on all of their height
    visual = part_of(link, "bit").solid.vertices - bit
    assert visual[:, 2].max() == pytest.approx(0.0, abs=1e-9)


MEMBER = "t_handle"

BAD_MODELS = (
    BadModel("slim_bit", "screwdriver", "t_handle", part_scaled("bit", x=0.8),
             "thickness of the bit at its flank"),
    BadModel("short_bit", "screwdriver", "t_handle", part_scaled("bit", y=0.7),
             "width of the bit"),
    BadModel("skew_bit", "screwdriver", "t_handle", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
)  # fmt: skip
