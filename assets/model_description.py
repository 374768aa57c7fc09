"""Descriptions of tools and objects as values, and their materials.

Frames: the model frame of an object has its origin at the centre of its base, z up. That of a tool
is the frame T where the hand holds it. T coincides with the end-effector frame when the tool sits
nominally in the hand: z_T points away from the palm, y_T is the closing direction of the fingers,
and x_T runs along the handle to the working end. The palm is 45 mm behind the origin, and the
fingers are 30 mm open.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleet_tools.assets.solids import MassProperties, Solid, combined, mass_properties
from fleet_tools.config.geometry import Pose
from fleet_tools.sim.catalog import Kind


@dataclass(frozen=True)
class Material:
    """A homogeneous material.

    Attributes:
        density: Density, kg/m^3.
        colour: Diffuse red, green and blue, in [0, 1].
        modulus: Hydroelastic modulus, Pa; an infinite one makes the contact surface rigid.
        friction: Coulomb coefficient, static and dynamic. Drake combines the coefficients a and b
            of two surfaces as 2ab / (a + b).
        dissipation: Hunt-Crossley dissipation, s/m.
    """

    density: float
    colour: tuple[float, float, float]
    modulus: float
    friction: float
    dissipation: float

    def coloured(self, red: float, green: float, blue: float) -> "Material":
        """Returns the same material in another colour."""
        return replace(self, colour=(red, green, blue))


# Moduli are those at which contact resolves well at 4 ms steps, not the materials' own.
STEEL = Material(7850.0, (0.68, 0.69, 0.71), modulus=1e8, friction=0.3, dissipation=5.0)
FORGED_STEEL = STEEL.coloured(0.22, 0.23, 0.25)
BRASS = Material(8500.0, (0.80, 0.62, 0.25), modulus=1e8, friction=0.3, dissipation=5.0)
ASH = Material(680.0, (0.82, 0.64, 0.42), modulus=1e8, friction=0.4, dissipation=10.0)
HICKORY = Material(820.0, (0.72, 0.48, 0.27), modulus=1e8, friction=0.4, dissipation=10.0)
BEECH = Material(720.0, (0.80, 0.58, 0.38), modulus=1e8, friction=0.4, dissipation=10.0)
PINE = Material(500.0, (0.87, 0.73, 0.52), modulus=math.inf, friction=0.4, dissipation=10.0)
FIBREGLASS = Material(1850.0, (0.90, 0.55, 0.08), modulus=1e8, friction=0.4, dissipation=10.0)
NYLON = Material(1150.0, (0.86, 0.14, 0.12), modulus=5e7, friction=0.3, dissipation=10.0)
RUBBER = Material(1200.0, (0.17, 0.17, 0.18), modulus=1e7, friction=0.8, dissipation=20.0)

# Stiffer variants, for what is turned or pried with a close fit; and colours that families share.
HARD_STEEL, HARD_BRASS = (replace(metal, modulus=1e9) for metal in (STEEL, BRASS))
CAST_IRON = replace(STEEL.coloured(0.33, 0.34, 0.36), density=7200.0, modulus=math.inf)
CHROME = HARD_STEEL.coloured(0.78, 0.79, 0.81)
BLACK_OXIDE = HARD_STEEL.coloured(0.15, 0.15, 0.17)
BLUE_PLASTIC, YELLOW_PLASTIC = NYLON.coloured(0.12, 0.25, 0.62), NYLON.coloured(0.93, 0.72, 0.10)

MaterialName = Literal[
    "ash",
    "beech",
    "brass",
    "fibreglass",
    "forged_steel",
    "hickory",
    "nylon",
    "pine",
    "rubber",
    "steel",
]

MATERIALS: Mapping[MaterialName, Material] = {
    "ash": ASH,
    "beech": BEECH,
    "brass": BRASS,
    "fibreglass": FIBREGLASS,
    "forged_steel": FORGED_STEEL,
    "hickory": HICKORY,
    "nylon": NYLON,
    "pine": PINE,
    "rubber": RUBBER,
    "steel": STEEL,
}
"""Materials that an imported mesh can have, by name."""


SIGNATURE = "# written by the generator: python -m fleet_tools.assets"
"""Beginning of the files of a generated model."""

Position = tuple[float, float, float]
"""x, y and z, m."""


def as_position(coordinates: Iterable[float]) -> Position:
    """Returns three coordinates, such as an array (3,), as a position."""
    x, y, z = (float(coordinate) for coordinate in coordinates)
    return x, y, z


@dataclass(frozen=True)
class PartDescription:
    """One piece of a link, of one material.

    Attributes:
        name: Name, unique in its model; the mesh files are named after it.
        solid: Visual geometry, which also has the part's mass, in the link's frame.
        material: Its material.
        collision: Collision geometry: convex solids of few vertices (see `solids.frusta`), because
            the cost of contact grows with the number of triangles. Empty where another part's
            collision geometry already covers it.
        collision_digits: Digits after the decimal point of the coordinates of the collision
            geometry. Generated solids are designed in whole nanometres; rounding would bend the
            planes of an imported mesh's pieces, which Drake refuses with "a mesh field element was
            degenerate".
        core: Point inside of the collision geometry, if that is one solid: contact then has its
            very triangles, each the base of a tetrahedron to this point, where the pressure is
            the modulus. Without it, Drake divides the faces as it likes.
    """

    name: str
    solid: Solid
    material: Material
    collision: tuple[Solid, ...] = ()
    collision_digits: int = 9
    core: Position | None = None


@dataclass(frozen=True)
class LinkDescription:
    """A rigid body.

    Attributes:
        name: Name.
        parts: Its parts.
        origin: Origin of its frame in the model frame, m; the axes are parallel.
        inertial: Mass properties in its own frame; the parts' own if None. They are given where
            the visual geometry is a simplified one.
    """

    name: str
    parts: tuple[PartDescription, ...]
    origin: Position = (0.0, 0.0, 0.0)
    inertial: MassProperties | None = None

    def mass_properties(self) -> MassProperties:
        """Returns the mass properties in the link's frame."""
        if self.inertial is not None:
            return self.inertial
        return combined([mass_properties(p.solid, p.material.density) for p in self.parts])


@dataclass(frozen=True)
class JointDescription:
    """A joint that resists motion like dry friction; it is at zero where the child's frame is.

    Drake has no dry friction in joints. An actuator with a derivative gain this high, a zero
    desired velocity (which the simulation must connect) and a limited effort is an implicit Coulomb
    brake: it holds up to `resistance`, and gives way beyond.

    Attributes:
        name: Name.
        kind: SDFormat's type of the joint; a screw turns about its axis and moves along it.
        parent: Name of the parent link.
        child: Name of the child link.
        axis: Unit vector in the model frame.
        limits: Lowest and highest position, m, or rad of a joint that turns.
        resistance: Force in N, or torque in N m, at which the joint gives way.
        inertia: Inertia along the joint that is added to the child's, kg or kg m^2. Below its
            resistance the brake creeps at load / gain, but not more slowly than the solver can stop
            the moving mass in a step; without this addition a light pin creeps ten times faster.
        lead: Distance along the axis in one turn, m, of a screw; negative for a left-handed thread.
    """

    name: str
    kind: Literal["prismatic", "revolute", "screw"]
    parent: str
    child: str
    axis: Position
    limits: tuple[float, float]
    resistance: float
    inertia: float
    lead: float = 0.0

    def __post_init__(self) -> None:
        """Refuses a screw without a lead, and a lead of anything else, with a ValueError."""
        if (self.kind == "screw") != (self.lead != 0.0):
            raise ValueError(
                f"expected a lead for screw joints only; given: {self.kind} joint {self.name} with "
                f"a lead of {self.lead} m"
            )


@dataclass(frozen=True)
class KeypointDescription:
    """A labelled point.

    Attributes:
        link: Name of the link in whose frame it is given.
        position: Position, m.
    """

    link: str
    position: Position


@dataclass(frozen=True)
class ModelDescription:
    """The whole content of a model folder.

    Attributes:
        kind: Whether it is a tool or an object.
        family: Name of its family.
        name: Name of the model.
        links: Its links.
        keypoints: Its keypoints by name.
        joints: Its joints.
        grasp: Pose X_TG at which the end effector holds a tool.
        signature: Beginning of its files, a comment that names the program.
    """

    kind: Kind
    family: str
    name: str
    links: tuple[LinkDescription, ...]
    keypoints: Mapping[str, KeypointDescription]
    joints: tuple[JointDescription, ...] = ()
    grasp: Pose | None = None
    signature: str = SIGNATURE

    @property
    def mass(self) -> float:
        """Mass of all links together, kg."""
        return sum(link.mass_properties().mass for link in self.links)

    def folder(self, root: Path) -> Path:
        """Returns the model's folder below an assets folder."""
        return root / f"{self.kind}s" / self.family / self.name


def rigid_model(
    kind: Kind,
    family: str,
    name: str,
    parts: tuple[PartDescription, ...],
    points: Mapping[str, Iterable[float]],
) -> ModelDescription:
    """Returns a model of one link, which is named after the family and holds all keypoints."""
    keypoints = {key: KeypointDescription(family, as_position(p)) for key, p in points.items()}
    return ModelDescription(kind, family, name, (LinkDescription(family, parts),), keypoints)


def jointed_model(
    family: str,
    name: str,
    links: tuple[LinkDescription, LinkDescription],
    joint: JointDescription,
    points: Mapping[str, tuple[LinkDescription, Position]],
    signature: str = SIGNATURE,
) -> ModelDescription:
    """Returns an object of two links with a joint; keypoints are given with their links."""
    return ModelDescription(
        kind="object",
        family=family,
        name=name,
        links=links,
        joints=(joint,),
        keypoints={key: KeypointDescription(link.name, p) for key, (link, p) in points.items()},
        signature=signature,
    )
