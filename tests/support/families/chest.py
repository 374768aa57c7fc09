"""Chests: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import heights, part_of, points_of
from support.model_defects import keypoints_moved

from fleet_tools.assets.families.chest import DEPTH, INSERTION, SILL, SLOT, UNDER
from fleet_tools.assets.model_description import ModelDescription


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    case, lid = model.links
    (hinge,) = model.joints
    sill, left, right, base = points_of(model, "sill", "left", "right", "base")
    ends = [point + lid.origin for point in points_of(model, "lid_left", "lid_right")]
    assert np.array_equal((left + right) / 2, sill) and left[1] > 0 > right[1]
    for end, side in zip(ends, (left, right), strict=True):
        assert end[0] - side[0] == pytest.approx(SILL + UNDER)
        assert end[2] - side[2] == pytest.approx(SLOT) and (side - end)[1] * side[1] > 0
    assert np.array_equal(base, np.zeros(3)) and heights(case, "case").min() == 0
    # The lid covers the frame, and is within the case, so that nobody gets under it but there.
    low, high = part_of(lid, "lid").solid.bounds() + np.array(lid.origin)
    case_low, case_high = part_of(case, "case").solid.bounds()
    frame_low, frame_high = part_of(case, "frame").solid.bounds()
    assert np.all(case_low[:2] < low[:2]) and np.all(high[:2] < case_high[:2])
    assert np.all(low[:2] < frame_low[:2]) and np.all(frame_high[:2] < high[:2])
    assert frame_low[0] - low[0] == pytest.approx(DEPTH) and DEPTH > INSERTION + 0.01
    assert frame_high[2] == pytest.approx(low[2]) and low[2] - case_high[2] == pytest.approx(SLOT)
    # The hinge is the lid's lower far edge; its Coulomb brake holds more than the wrist can lift.
    assert hinge.axis == (0.0, 1.0, 0.0) and lid.origin[0] == pytest.approx(high[0])
    assert hinge.resistance / (high[0] - low[0]) > 60
    weight = 9.81 * lid.mass_properties().mass * (high[0] - low[0]) / 2
    assert weight < 0.1 * hinge.resistance


MEMBER = "crate"

BAD_MODELS = (
    BadModel("low_sill", "chest", "crate",
             keypoints_moved("sill", "left", "right", by=(0, 0, -0.01)), "height of the slot"),
    BadModel("far_sill", "chest", "crate",
             keypoints_moved("sill", "left", "right", by=(0.01, 0, 0)),
             "distance of the lid behind the sill"),
    BadModel("slanted_sill", "chest", "crate", keypoints_moved("left", by=(0.004, 0, 0)),
             "deviation from a right angle"),
)  # fmt: skip
