"""Slabs: they lie flat, and a blade can be slid under their rim."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.family_laws import family_laws

from fleet_tools.assets.families import slab
from fleet_tools.assets.model_description import ModelDescription


def check(model: ModelDescription) -> None:
    (link,) = model.links
    (part,) = link.parts
    (collision,) = part.collision
    assert slab.MASS_BOUNDS[0] <= model.mass <= slab.MASS_BOUNDS[1]
    base, top = (np.array(model.keypoints[name].position) for name in ("base", "top"))
    assert np.array_equal(base, np.zeros(3)) and np.array_equal(top[:2], np.zeros(2))
    for solid in (part.solid, collision):
        z = solid.vertices[:, 2]
        assert (z.min(), z.max()) == (0.0, pytest.approx(top[2]))
        # The base is centred, so that the slab lies stably.
        np.testing.assert_allclose(solid.vertices[z < 1e-9].mean(axis=0), base, atol=1e-9)
    np.testing.assert_allclose(link.mass_properties().centre[:2], 0, atol=1e-9)
    # The collision geometry is a prism, as wide as the visual geometry.
    lower = collision.vertices[collision.vertices[:, 2] == 0]
    np.testing.assert_allclose(np.ptp(lower, axis=0)[:2], np.ptp(collision.vertices, axis=0)[:2])
    np.testing.assert_allclose(np.ptp(lower, axis=0)[:2], np.ptp(part.solid.vertices, axis=0)[:2])
    assert len(lower) == len(collision.vertices) / 2


test_shipped, test_random = family_laws("slab", check)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roundness": 1.2}, "roundness"),
        ({"dome": 0.8}, "dome"),
        ({"height": 0.06}, "height < half_x"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(slab.CATALOGUE["patty"], **change)
