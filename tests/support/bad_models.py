"""Models with one defect each, made from models that ship; what each is to be told."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.families import FamilyName, find_family
from fleet_tools.assets.mass_properties import MassProperties
from fleet_tools.assets.model_description import (
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
    as_position,
)
from fleet_tools.assets.solids import Solid, loft
from fleet_tools.config.poses import Pose

Change = Callable[[ModelDescription], ModelDescription]


@dataclass(frozen=True)
class BadModel:
    """A model with a defect.

    Attributes:
        name: Name of the defect.
        family, member: The model of the package from which it is made.
        change: Makes the defect.
        finding: Name of the rule that must not hold.
    """

    name: str
    family: FamilyName
    member: str
    change: Change
    finding: str

    def make(self) -> ModelDescription:
        """Returns the model."""
        module = find_family(self.family)
        model = module.build(module.CATALOGUE[self.member], self.member)
        return replace(self.change(model), name=self.name)


def keypoints_moved(*names: str, by: tuple[float, float, float]) -> Change:
    """Returns a change that moves keypoints by a vector, m."""

    def change(model: ModelDescription) -> ModelDescription:
        moved = {
            name: KeypointDescription(
                point.link, as_position(np.add(point.position, by if name in names else (0, 0, 0)))
            )
            for name, point in model.keypoints.items()
        }
        return replace(model, keypoints=moved)

    return change


def links_changed(change: Callable[[LinkDescription], LinkDescription]) -> Change:
    """Returns a change of every link."""
    return lambda model: replace(model, links=tuple(map(change, model.links)))


def masses_changed(mass: float = 1.0, inertia: float = 1.0, x: float = 0.0) -> Change:
    """Returns a change that scales mass and inertia, and moves the centre of mass along x, m."""

    def change(link: LinkDescription) -> LinkDescription:
        given = link.mass_properties()
        centre = given.centre + np.array([x, 0.0, 0.0])
        return replace(
            link, inertial=MassProperties(mass * given.mass, centre, inertia * given.inertia)
        )

    return links_changed(change)


def collision_changed(part: str, change: Callable[[Solid], Solid]) -> Change:
    """Returns a change of the collision geometry of one part."""

    def of_part(given: PartDescription) -> PartDescription:
        if given.name != part:
            return given
        return replace(given, collision=tuple(map(change, given.collision)), collision_digits=17)

    return links_changed(lambda link: replace(link, parts=tuple(map(of_part, link.parts))))


def blunt_edge(thickness: float) -> Change:
    """Returns a change that makes a level spatula's blade as thick at the edge, m."""

    def change(solid: Solid) -> Solid:
        x, y, z = solid.vertices.T
        upper_edge = (x > x.max() - 1e-6) & (z < z.max() - 1e-6)
        raised = np.where(upper_edge, z.max() - thickness, z)
        return Solid(np.column_stack([x, y, raised]), solid.triangles)

    return collision_changed("blade", change)


def narrow_mouth(scale: float) -> Change:
    """Returns a change that scales a wrench's head across, as if pieces filled its mouth."""
    return collision_changed(
        "head", lambda solid: Solid(solid.vertices * [1.0, scale, 1.0], solid.triangles)
    )


def prism(sides: int) -> Callable[[Solid], Solid]:
    """Returns a change of a solid to a regular prism with as many sides and flats 40 mm apart."""

    def change(solid: Solid) -> Solid:
        low, high = solid.vertices[:, 2].min(), solid.vertices[:, 2].max()
        angles = np.pi / 2 + (2 * np.arange(sides) + 1) * np.pi / sides
        outline = 0.020 / np.cos(np.pi / sides) * np.column_stack([np.cos(angles), np.sin(angles)])
        return loft([np.column_stack([outline, np.full(sides, z)]) for z in (low, high)])

    return change


def thick_blade(scale: float) -> Change:
    """Returns a change that scales a knife's blade in thickness."""
    return collision_changed(
        "blade", lambda solid: Solid(solid.vertices * [1.0, scale, 1.0], solid.triangles)
    )


def held_beside(model: ModelDescription) -> ModelDescription:
    """Returns a tool that is to be held where it is not."""
    return replace(model, grasp=Pose(translation_m=(0.0, 0.0, -0.2)))


def without(keypoint: str) -> Change:
    """Returns a change that removes a keypoint."""

    def change(model: ModelDescription) -> ModelDescription:
        rest = {name: point for name, point in model.keypoints.items() if name != keypoint}
        return replace(model, keypoints=rest)

    return change


def raised(model: ModelDescription) -> ModelDescription:
    """Returns an object that floats 10 mm above the table."""
    links = tuple(
        replace(link, origin=as_position(np.add(link.origin, (0, 0, 0.01)))) for link in model.links
    )
    return replace(model, links=links)


BAD_MODELS = (
    BadModel("blunt", "spatula", "turner", blunt_edge(0.0014), "edge thickness"),
    BadModel("light", "hammer", "claw", masses_changed(0.00119, 0.00119), "density"),
    BadModel("round", "nut", "hex_nut", collision_changed("nut", prism(16)),
             "width across corners by that across flats"),
    BadModel("filled_mouth", "wrench", "open_end", narrow_mouth(0.765), "opening between the pads"),
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
    BadModel("held_beside", "hammer", "claw", held_beside, "width in the hand"),
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
             "distance from the underside of the blade"),
    BadModel("low_hand", "spatula", "turner",
             lambda model: replace(model, grasp=Pose(translation_m=(0.0, 0.0, 0.008))),
             "height of the hand above the sole"),
    BadModel("club_knife", "knife", "chef", thick_blade(40), "thickness of the edge"),
    BadModel("off_edge", "knife", "chef", keypoints_moved("edge", "heel", "tip", by=(0, 0, 0.006)),
             "distance from the surface"),
    BadModel("slanted_spine", "knife", "chef", keypoints_moved("spine", by=(0.01, 0, 0)),
             "deviation from a right angle"),
    BadModel("off_the_flats", "nut", "hex_nut", keypoints_moved("left", by=(0.006, 0, 0)),
             "angle between right -> left and the flats' normal"),
    BadModel("slanted_flats", "nut", "hex_nut", keypoints_moved("left", by=(0, 0, 0.002)),
             "deviation from a right angle"),
    BadModel("large", "nut", "hex_nut",
             collision_changed("nut", lambda s: Solid(s.vertices * [1.1, 1.1, 1], s.triangles)),
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
)  # fmt: skip
"""Every rule is broken by at least one of them."""
