"""Nails: what holds of each, and what is refused."""

import pytest
from support.bad_models import BadModel
from support.family_geometry import heights
from support.model_defects import keypoints_moved

from fleet_tools.assets.model_description import ModelDescription


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    (slide,), (block, pin) = model.joints, model.links
    travel, top = slide.limits[1], heights(block, "block").max()
    head, shaft = heights(pin, "head"), heights(pin, "shaft")
    assert heights(block, "block").min() == 0
    assert slide.limits[0] == 0 and 0.030 <= travel <= 0.035
    assert 0.040 <= head.max() - top <= 0.055 + 1e-12
    assert head.min() - travel - top >= 0.005 - 1e-9
    assert shaft.min() - travel >= 0.005 - 1e-9 and shaft.min() < top
    assert shaft.max() == pytest.approx(head.min(), abs=1e-3)
    assert model.keypoints["head"].position == (0, 0, pytest.approx(head.max() - top))
    assert model.keypoints["base"].position == (0, 0, top)
    for part in pin.parts:  # both geometries are equally high
        top_of_collision = max(solid.vertices[:, 2].max() for solid in part.collision)
        assert top_of_collision == part.solid.vertices[:, 2].max()


MEMBER = "round_nail"

BAD_MODELS = (
    BadModel("sunk", "nail", "round_nail", keypoints_moved("head", by=(0, 0, -0.03)),
             "distance from the top"),
    BadModel("flush", "nail", "round_nail", keypoints_moved("head", by=(0, 0, -0.03)),
             "height above the block"),
)  # fmt: skip
