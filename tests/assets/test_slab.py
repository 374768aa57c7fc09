"""Slabs: they lie flat, and end below in a rim that a blade gets under."""

from dataclasses import replace

import numpy as np
import pytest
from family_laws import family_laws

from fleet_tools.assets.families import slab
from fleet_tools.assets.model import Model


def check(model: Model) -> None:
    (link,) = model.links
    (part,) = link.parts
    (felt,) = part.collision
    assert slab.MASSES[0] <= model.mass <= slab.MASSES[1]
    base, top = (np.array(model.keypoints[name].position) for name in ("base", "top"))
    assert np.array_equal(base, np.zeros(3)) and np.array_equal(top[:2], np.zeros(2))
    for solid in (part.solid, felt):
        z = solid.vertices[:, 2]
        assert (z.min(), z.max()) == (0.0, pytest.approx(top[2]))
        # Its weight is over the middle, so that it lies as it is put.
        np.testing.assert_allclose(solid.vertices[z < 1e-9].mean(axis=0), base, atol=1e-9)
    np.testing.assert_allclose(link.mass_properties().centre[:2], 0, atol=1e-9)
    # Felt, it is a prism: as wide at the table as anywhere, and as wide as it is seen to be.
    lower = felt.vertices[felt.vertices[:, 2] == 0]
    np.testing.assert_allclose(np.ptp(lower, axis=0)[:2], np.ptp(felt.vertices, axis=0)[:2])
    np.testing.assert_allclose(np.ptp(lower, axis=0)[:2], np.ptp(part.solid.vertices, axis=0)[:2])
    assert len(lower) == len(felt.vertices) / 2


test_shipped, test_random = family_laws(slab, check)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"roundness": 1.2}, "roundness"),
        ({"dome": 0.8}, "dome"),
        ({"height": 0.06}, "height < half_x"),
    ],
)
def test_impossible_measures_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        replace(slab.CATALOGUE["patty"], **change)
