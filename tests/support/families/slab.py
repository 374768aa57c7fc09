"""Slabs: what holds of each, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import points_of
from support.model_defects import keypoints_moved, raised

from fleet_tools.assets.families import slab
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.solids import box


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    (link,) = model.links
    (part,) = link.parts
    (collision,) = part.collision
    assert slab.MASS_BOUNDS[0] <= model.mass <= slab.MASS_BOUNDS[1]
    base, top = points_of(model, "base", "top")
    assert np.array_equal(base, np.zeros(3)) and np.array_equal(top[:2], np.zeros(2))
    for solid in (part.solid, collision):
        z = solid.vertices[:, 2]
        assert (z.min(), z.max()) == (0.0, pytest.approx(top[2]))
        # The base is centred, so that the slab lies stably.
        np.testing.assert_allclose(solid.vertices[z < 1e-9].mean(axis=0), base, atol=1e-9)
    np.testing.assert_allclose(link.mass_properties().centre[:2], 0, atol=1e-9)
    # The collision geometry is a prism, as wide as the visual geometry.
    lower = collision.vertices[collision.vertices[:, 2] == 0]
    for other in (collision, part.solid):
        np.testing.assert_allclose(np.ptp(lower, axis=0)[:2], np.ptp(other.vertices, axis=0)[:2])
    # The triangles of the base meet in its middle.
    assert (len(lower), len(collision.vertices)) == (9, 17)
    assert (collision.triangles == 0).any(axis=1).sum() == 8
    assert np.array_equal(collision.vertices[0], base)


def upright(model: ModelDescription) -> ModelDescription:
    """Returns a model that collides as a box."""
    (link,) = model.links
    (part,) = link.parts
    part = replace(part, collision=(box(*part.solid.bounds()),), core=None)
    return replace(model, links=(replace(link, parts=(part,)),))


MEMBER = "patty"

BAD_MODELS = (
    BadModel("floating", "slab", "patty", raised, "height of the lowest point"),
    BadModel("upright", "slab", "patty", upright, "angle from upright"),
    BadModel("base_in_the_middle", "slab", "patty", keypoints_moved("base", by=(0, 0, 0.008)),
             "distance from the surface"),
    BadModel("slanted_slab", "slab", "patty", keypoints_moved("top", by=(0.005, 0, 0)),
             "angle from the vertical"),
    BadModel("beside_the_middle", "slab", "patty",
             keypoints_moved("base", "top", by=(0.02, 0, 0)),
             "distance from below the centre of mass"),
)  # fmt: skip
