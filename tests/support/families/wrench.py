"""Wrenches: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import points_of, surface_points
from support.model_defects import keypoints_moved, masses_changed, part_scaled, without

from fleet_tools.assets.families import wrench
from fleet_tools.assets.families.wrench import PAD
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
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
    jaw, left, right, upper, lower = points_of(model, "jaw", "left", "right", "upper", "lower")
    np.testing.assert_allclose((left + right) / 2, jaw, atol=1e-12)
    assert np.linalg.norm(right - left) == pytest.approx(2 * PAD)
    assert (right - left)[1] > 0 and np.array_equal((upper - lower)[:2], [0, 0])
    assert upper[2] < lower[2]


MEMBER = "open_end"

BAD_MODELS = (
    BadModel("filled_mouth", "wrench", "open_end", part_scaled("head", y=0.765),
             "opening between the pads"),
    BadModel("in_grams", "wrench", "open_end", masses_changed(1000, 1000), "density"),
    BadModel("off_jaw", "wrench", "open_end", keypoints_moved("jaw", by=(0, 0.005, 0)),
             "distance from the middle between the pads"),
    BadModel("skew_pads", "wrench", "open_end", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
    BadModel("no_jaw", "wrench", "open_end", without("jaw"), "opening between the pads"),
)  # fmt: skip
