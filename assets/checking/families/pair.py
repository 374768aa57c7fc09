"""What the expert needs of a pair: two upright blocks that touch along a seam."""

from fleet_tools.assets.checking.measures import keypoint_distance, surface_distance
from fleet_tools.assets.checking.rule import Rule

RULES = (
    Rule(
        "distance between the seams",
        keypoint_distance("left_seam", "right_seam"),
        "mm",
        high=0.002,
        reason="the blocks touch where the blade goes in",
        remedy="Place both blocks so that `left_seam` and `right_seam` meet in the model frame.",
    ),
    Rule(
        "distance from the surface",
        surface_distance("left_foot", "right_foot", "left_seam", "right_seam", "seam_end"),
        "mm",
        high=0.002,
        reason="the expert brings the edge to the seam within 0.3 mm",
        remedy="Move these keypoints onto the blocks: feet below, seams where the blocks meet.",
    ),
)
