"""Spatulas: they fit the hand, and their blades lie flat and end in a thin edge."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.family_laws import family_laws

from fleet_tools.assets.families import spatula
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    (link,) = model.links
    assert 0.05 <= model.mass <= 0.5
    edge, heel, sole, face, tail = (
        np.array(model.keypoints[name].position)
        for name in ("edge", "heel", "sole", "face", "tail")
    )
    along = (edge - heel) / np.linalg.norm(edge - heel)
    np.testing.assert_allclose(sole, (edge + heel) / 2, atol=1e-9)
    # The face is straight above the sole; up is from the blade towards the handle.
    up = (face - sole) / np.linalg.norm(face - sole)
    assert abs(along @ up) < 1e-6 and up[2] < -0.9
    assert tail[0] < 0 < heel[0] < edge[0] and (tail - sole) @ up > 0.03

    parts = {part.name: part for part in link.parts}
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            # Nothing is below the plane of the sole, which can lie flat on a table.
            assert ((solid.vertices - sole) @ up).min() > -1e-8, part.name
            # The fingers have room around the grip.
            assert -(sole @ up) >= spatula.CLEARANCE - 1e-9
    handle = parts["handle"].solid.vertices
    held = handle[np.abs(handle[:, 0]) <= GRIP_END + 1e-9]
    assert np.abs(held[:, 1]).max() == pytest.approx(GRIP)

    # In both geometries, the edge is thin, straight and centred on its keypoint.
    for solids in ((parts["blade"].solid,), parts["blade"].collision):
        vertices = np.concatenate([solid.vertices for solid in solids])
        rim = vertices[vertices[:, 0] > edge[0] - 1e-9]
        assert np.ptp(rim[:, 2]) == pytest.approx(spatula.EDGE, abs=1e-8)
        assert rim[:, 2].max() == pytest.approx(edge[2], abs=1e-8)
        assert rim[:, 1].max() == -rim[:, 1].min() > 0.02


test_shipped, test_random = family_laws("spatula", check)


def test_slots_save_material_and_do_not_change_the_collision_geometry() -> None:
    solid, slotted = (
        spatula.build(replace(spatula.CATALOGUE["turner"], slots=slots), "one") for slots in (0, 4)
    )
    assert 0.7 * solid.mass < slotted.mass < solid.mass
    one, other = (model.links[0].parts[-1].collision[0] for model in (solid, slotted))
    np.testing.assert_array_equal(one.vertices, other.vertices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"butt_x": 0.01}, "butt_x"),
        ({"handle_x": 0.2}, "handle_x < heel_x"),
        ({"thickness": 0.0002}, "thickness > EDGE"),
        ({"slots": 3}, "slots even"),
        ({"drop": 0.02}, "clear of the table"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(spatula.CATALOGUE["turner"], **change)
