"""Models with one defect each, made from models that ship; what each is to be told."""

from dataclasses import dataclass, replace

from model_defects import (
    Change,
    blunt_edge,
    collision_changed,
    held_at,
    keypoints_moved,
    masses_changed,
    part_scaled,
    prism,
    raised,
    without,
)

from fleet_tools.assets.families import find_family
from fleet_tools.assets.model_description import ModelDescription


@dataclass(frozen=True)
class BadModel:
    """A model with a defect."""

    name: str
    family: str
    member: str
    change: Change
    finding: str

    def make(self) -> ModelDescription:
        """Returns the model."""
        return replace(self.change(find_family(self.family).member(self.member)), name=self.name)


BAD_MODELS = (
    BadModel("blunt", "spatula", "turner", blunt_edge(0.0014), "edge thickness"),
    BadModel("light", "hammer", "claw", masses_changed(0.00119, 0.00119), "density"),
    BadModel("round", "nut", "hex_nut", collision_changed("nut", prism(16)),
             "width across corners by that across flats"),
    BadModel("filled_mouth", "wrench", "open_end", part_scaled("head", y=0.765),
             "opening between the pads"),
    BadModel("in_grams", "wrench", "open_end", masses_changed(1000, 1000), "density"),
    BadModel("heavy", "hammer", "club", masses_changed(3.2, 3.2), "mass"),
    BadModel("unit_inertia", "knife", "chef", masses_changed(1, 1000),
             "radius of gyration by half the diagonal"),
    BadModel("point_inertia", "knife", "chef", masses_changed(1, 1e-6),
             "radius of gyration by half the diagonal"),
    BadModel("mass_elsewhere", "hammer", "claw", masses_changed(x=0.5),
             "centre of mass outside of the bounding box"),
    BadModel("millimetres", "hammer", "claw", keypoints_moved("tail", by=(-95, 0, 0)),
             "distance outside of the model"),
    BadModel("held_beside", "hammer", "claw", held_at(-0.2), "width in the hand"),
    BadModel("floating", "slab", "patty", raised, "height of the lowest point"),
    BadModel("off_face", "hammer", "claw", keypoints_moved("head", by=(0, 0, 0.02)),
             "distance from the face along the blow"),
    BadModel("past_the_face", "hammer", "claw", keypoints_moved("head", "side", by=(0.012, 0, 0)),
             "relief of the face within 5 mm of head"),
    BadModel("off_jaw", "wrench", "open_end", keypoints_moved("jaw", by=(0, 0.005, 0)),
             "distance from the middle between the pads"),
    BadModel("skew_pads", "wrench", "open_end", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
    BadModel("no_jaw", "wrench", "open_end", without("jaw"), "opening between the pads"),
    BadModel("edge_up", "spatula", "turner", keypoints_moved("face", by=(0.0001, 0, 0)),
             "rise of the sole towards the edge"),
    BadModel("tilted", "spatula", "turner", keypoints_moved("face", by=(0, 0.0004, 0)),
             "rise of the sole to a side"),
    BadModel("deep_sole", "spatula", "turner", keypoints_moved("sole", "face", by=(0, 0, 0.003)),
             "height of the underside above sole"),
    BadModel("low_hand", "spatula", "turner",
             held_at(0.008),
             "height of the hand above the sole"),
    BadModel("club_knife", "knife", "chef", part_scaled("blade", y=40), "thickness of the edge"),
    BadModel("off_edge", "knife", "chef", keypoints_moved("edge", "heel", "tip", by=(0, 0, 0.006)),
             "distance from the surface"),
    BadModel("slanted_spine", "knife", "chef", keypoints_moved("spine", by=(0.01, 0, 0)),
             "deviation from a right angle"),
    BadModel("off_the_flats", "nut", "hex_nut", keypoints_moved("left", by=(0.006, 0, 0)),
             "angle between right -> left and the flats' normal"),
    BadModel("slanted_flats", "nut", "hex_nut", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
    BadModel("large", "nut", "hex_nut",
             part_scaled("nut", 1.1, 1.1),
             "width across flats"),
    BadModel("sunk", "nail", "round_nail", keypoints_moved("head", by=(0, 0, -0.03)),
             "distance from the top"),
    BadModel("flush", "nail", "round_nail", keypoints_moved("head", by=(0, 0, -0.03)),
             "height above the block"),
    BadModel("base_in_the_middle", "slab", "patty", keypoints_moved("base", by=(0, 0, 0.008)),
             "distance from the surface"),
    BadModel("slanted_slab", "slab", "patty", keypoints_moved("top", by=(0.005, 0, 0)),
             "angle from the vertical"),
    BadModel("beside_the_middle", "slab", "patty",
             keypoints_moved("base", "top", by=(0.02, 0, 0)),
             "distance from below the centre of mass"),
    BadModel("apart", "pair", "bricks", keypoints_moved("right_seam", by=(0, -0.01, 0)),
             "distance between the seams"),
    BadModel("off_the_blocks", "pair", "bricks", keypoints_moved("seam_end", by=(0.02, 0, 0)),
             "distance from the surface"),
)  # fmt: skip
"""Every rule is broken by at least one of them."""
