"""Hammers: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import part_of, points_of, surface_points
from support.model_defects import held_at, keypoints_moved, masses_changed

from fleet_tools.assets.families import hammer
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.parametric import GRIP


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    (link,) = model.links
    assert hammer.MASS_BOUNDS[0] <= model.mass <= hammer.MASS_BOUNDS[1]
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, _, z = surface = surface_points(solid).T
            assert not np.any((np.abs(x) < 0.035) & (z < -0.02)), part.name
            held = surface[1:, np.abs(x) < 0.035]
            assert np.all(np.abs(held) <= GRIP + 1e-9), part.name
            if part.name == "handle" and solid is part.solid:
                assert np.abs(held[0]).max() == pytest.approx(GRIP)
    head, tail, side = points_of(model, "head", "tail", "side")
    assert np.array_equal((head - side)[:2], [0, 0]) and head[2] > 0 > side[2]
    assert 0.12 < head[0] < 0.22 and tail[0] < -0.04
    # In both geometries, the striking face is the highest part, flat, and centred on its keypoint.
    striker = part_of(link, "striker")
    for solid in (striker.solid, *striker.collision):
        face = solid.vertices[solid.vertices[:, 2] > head[2] - 1e-9]
        assert len(face) >= 8 and np.ptp(face[:, 2]) < 1e-12
        np.testing.assert_allclose(face.mean(axis=0), head, atol=1e-12)
        assert solid.vertices[:, 2].max() == face[0, 2]


MEMBER = "ball_peen"

BAD_MODELS = (
    BadModel("light", "hammer", "claw", masses_changed(0.00119, 0.00119), "density"),
    BadModel("heavy", "hammer", "club", masses_changed(3.2, 3.2), "mass"),
    BadModel("mass_elsewhere", "hammer", "claw", masses_changed(x=0.5),
             "centre of mass outside of the bounding box"),
    BadModel("millimetres", "hammer", "claw", keypoints_moved("tail", by=(-95, 0, 0)),
             "distance outside of the model"),
    BadModel("held_beside", "hammer", "claw", held_at(-0.2), "width in the hand"),
    BadModel("held_above", "hammer", "claw", held_at(-0.1), "distance outside of the tool"),
    BadModel("off_face", "hammer", "claw", keypoints_moved("head", by=(0, 0, 0.02)),
             "distance from the face along the blow"),
    BadModel("past_the_face", "hammer", "claw", keypoints_moved("head", "side", by=(0.012, 0, 0)),
             "relief of the face within 5 mm of head"),
)  # fmt: skip
