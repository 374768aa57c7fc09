"""Knives: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import points_of
from support.model_defects import keypoints_moved, masses_changed, part_scaled

from fleet_tools.assets.families import knife
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
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
    edge, spine, heel, tip = points_of(model, "edge", "spine", "heel", "tip")
    bottom = collision.vertices[collision.vertices[:, 2] > edge[2] - 1e-9]
    top = collision.vertices[collision.vertices[:, 2] < spine[2] + 1e-9]
    assert len(bottom) == len(top) == 4
    assert 0 < np.ptp(bottom[:, 1]) < 0.0011 < np.ptp(top[:, 1]) < 0.0041
    np.testing.assert_allclose(collision.vertices[:, 1].mean(), 0, atol=1e-12)
    # The edge from heel to tip is parallel to the handle, and further from it than the spine.
    np.testing.assert_allclose(edge, (heel + tip) / 2, atol=1e-9)
    assert heel[2] == tip[2] and tip[0] - heel[0] > 0.08
    assert np.array_equal((edge - spine)[:2], [0, 0]) and edge[2] - spine[2] > 0.03


MEMBER = "chef"

BAD_MODELS = (
    BadModel("unit_inertia", "knife", "chef", masses_changed(1, 1000),
             "radius of gyration by half the diagonal"),
    BadModel("point_inertia", "knife", "chef", masses_changed(1, 1e-6),
             "radius of gyration by half the diagonal"),
    BadModel("club_knife", "knife", "chef", part_scaled("blade", y=40), "thickness of the edge"),
    BadModel("off_edge", "knife", "chef", keypoints_moved("edge", "heel", "tip", by=(0, 0, 0.006)),
             "distance from the surface"),
    BadModel("slanted_spine", "knife", "chef", keypoints_moved("spine", by=(0.01, 0, 0)),
             "deviation from a right angle"),
)  # fmt: skip
