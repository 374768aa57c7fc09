"""Pry bars: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import part_of, points_of, surface_points
from support.model_defects import keypoints_moved

from fleet_tools.assets.families import pry_bar
from fleet_tools.assets.families.chest import INSERTION, SLOT
from fleet_tools.assets.families.pry_bar import REACH
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    (link,) = model.links
    assert pry_bar.MASS_BOUNDS[0] <= model.mass <= pry_bar.MASS_BOUNDS[1]
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, y, z = surface_points(solid).T
            held = np.abs(x) < GRIP_END
            assert np.all(np.abs(y[held]) <= GRIP + 1e-9), part.name
            assert np.all(np.abs(z[held]) < 0.02), part.name  # clear of the palm
    tip, left, right, heel, back = points_of(model, "tip", "left", "right", "heel", "back")
    np.testing.assert_allclose((left + right) / 2, tip, atol=1e-9)
    assert np.linalg.norm(tip - heel) == pytest.approx(REACH)
    along, up = (tip - heel) / REACH, (back - heel) / np.linalg.norm(back - heel)
    assert abs(along @ up) < 1e-9 and along[0] > 0.9 and up[2] < -0.9
    # The hand is behind the heel, three times as far as the lid is ahead, and clears the sill.
    assert heel @ along > 3 * REACH - 0.025 and -heel @ up > 0.055
    # In both geometries the sole is plane, nothing is below it, and the tip goes into the slot.
    blade = part_of(link, "blade")
    for solid in (blade.solid, *blade.collision):
        p = surface_points(solid) - heel
        assert (p @ up).min() == pytest.approx(0.0, abs=1e-9)
        under = p[p @ along > REACH - INSERTION]
        assert (under @ up).max() < SLOT - 0.0015
    for part in link.parts:
        assert ((surface_points(part.solid) - heel) @ up).min() > -1e-6, part.name


MEMBER = "flat_bar"

BAD_MODELS = (
    BadModel("thick_tip", "pry_bar", "flat_bar", keypoints_moved("tip", by=(-0.03, 0, 0.008)),
             "thickness of the blade 12 mm behind its tip"),
    BadModel("short_blade", "pry_bar", "flat_bar", keypoints_moved("heel", "back", by=(0.01, 0, 0)),
             "distance of heel from tip"),
    BadModel("skew_blade", "pry_bar", "flat_bar", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
)  # fmt: skip
