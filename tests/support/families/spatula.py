"""Spatulas: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import part_of, points_of
from support.model_defects import blunt_edge, held_at, keypoints_moved

from fleet_tools.assets.families import spatula
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    (link,) = model.links
    assert 0.05 <= model.mass <= 0.5
    edge, heel, sole, face, tail = points_of(model, "edge", "heel", "sole", "face", "tail")
    along = (edge - heel) / np.linalg.norm(edge - heel)
    np.testing.assert_allclose(sole, (edge + heel) / 2, atol=1e-9)
    # The face is straight above the sole; up is from the blade towards the handle.
    up = (face - sole) / np.linalg.norm(face - sole)
    assert abs(along @ up) < 1e-6 and up[2] < -0.9
    assert tail[0] < 0 < heel[0] < edge[0] and (tail - sole) @ up > 0.03
    assert -(sole @ up) >= spatula.CLEARANCE - 1e-9  # the fingers have room around the grip
    for part in link.parts:  # nothing is below the plane of the sole, which can lie on a table
        for solid in (part.solid, *part.collision):
            assert ((solid.vertices - sole) @ up).min() > -1e-8, part.name
    handle, blade = part_of(link, "handle").solid.vertices, part_of(link, "blade")
    held = handle[np.abs(handle[:, 0]) <= GRIP_END + 1e-9]
    assert np.abs(held[:, 1]).max() == pytest.approx(GRIP)
    # In both geometries, the edge is thin, straight and centred on its keypoint.
    for solids in ((blade.solid,), blade.collision):
        vertices = np.concatenate([solid.vertices for solid in solids])
        rim = vertices[vertices[:, 0] > edge[0] - 1e-9]
        assert np.ptp(rim[:, 2]) == pytest.approx(spatula.EDGE, abs=1e-8)
        assert rim[:, 2].max() == pytest.approx(edge[2], abs=1e-8)
        assert rim[:, 1].max() == -rim[:, 1].min() > 0.02


MEMBER = "turner"

BAD_MODELS = (
    BadModel("blunt", "spatula", "turner", blunt_edge(0.0014), "edge thickness"),
    BadModel("edge_up", "spatula", "turner", keypoints_moved("face", by=(0.0001, 0, 0)),
             "rise of the sole towards the edge"),
    BadModel("tilted", "spatula", "turner", keypoints_moved("face", by=(0, 0.0004, 0)),
             "rise of the sole to a side"),
    BadModel("deep_sole", "spatula", "turner", keypoints_moved("sole", "face", by=(0, 0, 0.003)),
             "height of the underside above sole"),
    BadModel("low_hand", "spatula", "turner",
             held_at(0.008),
             "height of the hand above the sole"),
)  # fmt: skip
