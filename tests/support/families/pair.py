"""Pairs of blocks: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.model_defects import keypoints_moved

from fleet_tools.assets.model_description import ModelDescription


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    assert not model.joints
    left, right = model.links
    assert (left.name, right.name) == ("left", "right")
    for link, side in ((left, 1), (right, -1)):
        (part,) = link.parts
        assert 0.03 <= link.mass_properties().mass <= 0.5
        for solid in (part.solid, *part.collision):
            x, y, z = (solid.vertices + link.origin).T
            assert z.min() == 0 and np.abs(x).max() < 0.05
            # Each block reaches the seam at its base, and is clear of it above.
            assert (side * y).min() == pytest.approx(0, abs=1e-9)
            assert (side * y)[z > 0].min() > 1e-5
        (collision,) = part.collision
        assert collision.vertices[:, 2].max() == part.solid.vertices[:, 2].max()
        # The triangles of the base meet in its middle, so that the block can rest.
        of_base = np.sum(collision.vertices[:, 2] == 0)
        assert of_base in (5, 9) and np.array_equal(collision.vertices[0], np.zeros(3))
        assert (collision.triangles == 0).any(axis=1).sum() == of_base - 1
    origins = {link.name: link.origin for link in model.links}
    points = {name: np.add(origins[p.link], p.position) for name, p in model.keypoints.items()}
    for side in ("left", "right"):
        np.testing.assert_allclose(points[f"{side}_seam"], 0, atol=1e-9)
        rise = points[side] - points[f"{side}_foot"]
        assert np.array_equal(rise[:2], [0, 0]) and rise[2] > 0.02
    assert points["left"][1] > 0 > points["right"][1]
    along = points["seam_end"] - points["left_seam"]
    assert along[0] > 0.015 and np.array_equal(along[1:], [0, 0])


MEMBER = "tofu"

BAD_MODELS = (
    BadModel("apart", "pair", "bricks", keypoints_moved("right_seam", by=(0, -0.01, 0)),
             "distance between the seams"),
    BadModel("off_the_blocks", "pair", "bricks", keypoints_moved("seam_end", by=(0.02, 0, 0)),
             "distance from the surface"),
)  # fmt: skip
