"""Screws: what holds of each, and what is refused."""

import numpy as np
import pytest
from support.bad_models import BadModel
from support.family_geometry import heights, part_of, points_of
from support.model_defects import collision_changed, keypoints_moved, part_scaled, prism

from fleet_tools.assets.families.screw import DEPTH, FIT, FLOOR, SLOPE
from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.model_geometry import ConvexPiece, chords

ACROSS, UP = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])


def check(model: ModelDescription) -> None:
    """Checks a model that ships, or a random one."""
    block, screw = model.links
    head, (turn,) = part_of(screw, "head"), model.joints
    slot, left, right, top = points_of(model, "slot", "left", "right", "top")
    assert np.array_equal((left + right) / 2, slot) and top[2] - slot[2] == pytest.approx(DEPTH)
    # Friction of steel on steel, at most .3 * 1.3, cannot hold a bit against the walls' lean.
    assert SLOPE > 0.3 * 1.3
    # The slot has the same width at each place and height, and is open above.
    pieces = [ConvexPiece(solid.vertices) for solid in head.collision]
    for height in (0.001, 0.0035, 0.006):
        for x in (-0.012, -0.005, 0.0, 0.008, 0.012):
            across = chords(pieces, slot + np.array([x, 0.0, height]), ACROSS)
            ends = [end for chord in across for end in chord]
            assert min(np.abs(ends)) == pytest.approx(FLOOR + SLOPE * height, abs=1e-6)
            assert not any(start < 0 < end for start, end in across)
    up = chords(pieces, slot, UP)
    assert up[-1][1] == pytest.approx(0.0, abs=1e-9)
    # The head is level with the block, has room to go in and out, and clears the hole.
    level = heights(block, "block").max()
    assert heights(screw, "head").max() == pytest.approx(level, abs=2e-6)
    seat = screw.origin[2]
    travel = turn.lead * turn.limits[1] / (2 * np.pi)
    assert travel < heights(screw, "head").min() - seat
    assert heights(screw, "thread").min() > 0
    # In both geometries, the hole is wider than the head by FIT.
    widest = max(np.abs(solid.vertices[:, :2]).max() for solid in head.collision)
    for solid in part_of(block, "block").collision[1:]:  # beside the head
        low, high = (bound[:2] for bound in solid.bounds())
        assert np.maximum(low, -high).max() == pytest.approx(widest + FIT, abs=2e-6)
    hole = part_of(block, "block").solid.vertices
    rim = hole[np.isclose(hole[:, 2], level)]
    room = np.hypot(*rim.T[:2]).min() - np.hypot(*head.solid.vertices.T[:2]).max()
    assert room == pytest.approx(FIT, rel=0.2)
    (base,) = points_of(model, "base")
    assert np.array_equal(base, np.zeros(3)) and heights(block, "block").min() == 0


MEMBER = "wood_screw"

BAD_MODELS = (
    BadModel("filled_slot", "screw", "wood_screw", collision_changed("head", prism(16)),
             "width of the slot at half its depth"),
    BadModel("wide_slot", "screw", "wood_screw", part_scaled("head", y=1.3),
             "width of the slot at half its depth"),
    BadModel("steep_walls", "screw", "wood_screw",
             keypoints_moved("top", by=(0, 0, 0.02)), "lean of the slot's walls"),
    BadModel("slanted_slot", "screw", "wood_screw", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
)  # fmt: skip
