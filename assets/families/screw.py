"""Slotted screws in a block; a bit in the slot turns them against a brake, and they go in.

The block stands on z = 0 of the model frame, and the axis of the screw is its z axis. The head lies
in a hole, level with the top of the block, so that nothing but its top can be reached. The frame of
the screw has its origin at the bottom of the hole; the position of the joint `turn` is the angle by
which it has been screwed in, clockwise as seen from above. At zero the slot runs along x.

The walls of the slot lean outwards by `SLOPE`, and so do the flanks of the bits. Torque on a
leaning wall also lifts the bit. With the slope s and the friction angle f, a bit that turns against
a torque T at the arm r has to be pressed with T / r * tan(atan(SLOPE) - f). The slope is more than
the friction angle of steel on steel in any scene, so that no bit turns a screw without a load.
"""

import math
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families import Family, Meaning
from fleet_tools.assets.model_description import (
    CAST_IRON,
    HARD_BRASS,
    HARD_STEEL,
    PINE,
    JointDescription,
    LinkDescription,
    Material,
    ModelDescription,
    PartDescription,
    jointed_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.rules import Rule, Values, gap, perpendicular, right_angles
from fleet_tools.assets.solids import (
    OCTAGONAL,
    ROUND,
    SQUARE,
    Solid,
    box,
    circle,
    frusta,
    joined,
    loft,
    rectangle,
    section_loft,
)

SLOPE = 0.577
"""Tangent of the angle of the slot's walls and the bit's flanks from the vertical, 30 degrees."""

DEPTH = 0.007
"""Depth of the slot, m."""

FLOOR = 0.0015
"""Half the width of the slot at its floor, m."""

MOUTH = round(FLOOR + SLOPE * DEPTH, 6)
"""Half the width of the slot at the top of the head, m."""

ROOM = 0.0132
"""Half the length of a slot whose ends are closed, m."""

GAP = 0.004
"""Height of the head's underside above its seat, so that it can be screwed in and out, m."""

FIT = 0.001
"""Distance between the head and the rim around it, m."""

INERTIA = 1e-3
"""Added inertia about the axis of rotation, kg m^2; see `JointDescription`."""

RANGE = math.pi
"""Greatest angle of rotation from zero in either direction, rad."""


@dataclass(frozen=True)
class ScrewParams:
    """The parameters of a screw in its block, lengths in m.

    Attributes:
        head: Radius of the head.
        under: Height of the head below the floor of its slot.
        closed: Whether the slot ends before the edge of the head.
        bevel: Width of the bevel around the top of the head, which does not reach the slot's end.
        thread: Radius of the thread.
        lead: How far the screw goes in with one turn.
        base: Half the width of the block.
        base_height: Height of the block's top, which is level with the head's.
        base_corners: `ROUND`, `OCTAGONAL` or `SQUARE`.
        resistance: Torque at which the screw gives way, N m.
        material: Material of the screw.
        base_material: Material of the block.
    """

    head: float = 0.020
    under: float = 0.004
    closed: bool = False
    bevel: float = 0.001
    thread: float = 0.008
    lead: float = 0.004
    base: float = 0.045
    base_height: float = 0.055
    base_corners: int = SQUARE
    resistance: float = 0.8
    material: Material = HARD_STEEL
    base_material: Material = PINE

    @property
    def seat(self) -> float:
        """Height of the bottom of the hole in which the head is, m."""
        return round(self.base_height - GAP - self.height, 6)

    @property
    def height(self) -> float:
        """Height of the head, m."""
        return round(self.under + DEPTH, 6)

    @property
    def levels(self) -> tuple[float, float, float]:
        """Heights in the screw's frame, m: the head's underside, the slot's floor, the top."""
        return GAP, round(GAP + self.under, 6), round(GAP + self.height, 6)


def _block(p: ScrewParams) -> PartDescription:
    """Makes the block; nothing reaches the side of the head in its hole."""
    bevel, hole = 0.0015, round(p.head + FIT, 6)
    rings = [
        np.zeros((1, 3)),
        _outline(p.base, p.base_corners, 0.0),
        _outline(p.base, p.base_corners, p.base_height - bevel),
        _outline(p.base - bevel, p.base_corners, p.base_height),
        _outline(hole, ROUND, p.base_height),
        _outline(hole, ROUND, p.seat),
        np.array([[0.0, 0.0, p.seat]]),
    ]
    half = p.base if p.base_corners == SQUARE else p.base / math.sqrt(2)
    half = round(max(half, hole + 0.006), 6)  # of the largest square within the block
    low, high = p.seat, p.base_height
    below = rectangle(p.base, p.base) if p.base_corners == SQUARE else circle(p.base)
    collision = (
        *frusta([(0.0, below), (p.seat, below)], min(p.base_corners, OCTAGONAL)),
        box((-half, hole, low), (half, half, high)),
        box((-half, -half, low), (half, -hole, high)),
        box((hole, -hole, low), (half, hole, high)),
        box((-half, -hole, low), (-hole, hole, high)),
    )
    return PartDescription("block", loft(rings), p.base_material, collision)


def _outline(half: float, corners: int, z: float) -> np.ndarray:
    """Returns points around the block or its hole, (48, 3), the same angles for each shape."""
    angles = np.radians(np.arange(0.0, 360.0, 7.5))
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    reach = np.ones(len(angles))
    if corners != ROUND:
        sides = np.radians(np.arange(0.0, 360.0, 45.0 if corners == OCTAGONAL else 90.0))
        reach = (directions @ np.array([np.cos(sides), np.sin(sides)])).max(axis=1)
    return np.column_stack([half * directions / reach[:, None], np.full(len(angles), z)])


def _half_octagon(radius: float, y: float, z: float) -> np.ndarray:
    """Returns the corners of an octagon of which only what lies beyond a y is left, (6, 3)."""
    corner = round(radius * math.tan(math.pi / 8), 9)
    x = [radius, radius, corner, -corner, -radius, -radius]
    ys = [y, corner, radius, radius, corner, y]
    return np.column_stack([x, ys, np.full(6, z)])


def _half_disc(radius: float, y: float, z: float, points: int = 13) -> np.ndarray:
    """Returns points around the part of a disc beyond a y, (points, 3)."""
    start = math.asin(y / radius)
    angles = np.linspace(start, math.pi - start, points)
    return np.column_stack([radius * np.cos(angles), radius * np.sin(angles), np.full(points, z)])


def _mirrored(solid: Solid) -> Solid:
    """Returns a solid turned by half a turn about z."""
    return solid.transformed(np.diag([-1.0, -1.0, 1.0]), (0.0, 0.0, 0.0))


def _head(p: ScrewParams) -> PartDescription:
    """Makes the head: what is below the slot, both sides of it, and its ends if it has any."""
    under, floor, top = p.levels
    below = section_loft([(under, circle(p.head)), (floor, circle(p.head))], ROUND)
    edge = top - p.bevel
    at_edge = round(FLOOR + SLOPE * (edge - floor), 9)
    side = loft(
        [
            _half_disc(p.head, FLOOR, floor),
            _half_disc(p.head, at_edge, edge),
            _half_disc(p.head - p.bevel, MOUTH, top),
        ]
    )
    jaw = loft([_half_octagon(p.head, FLOOR, floor), _half_octagon(p.head, MOUTH, top)])
    visual = [below, side, _mirrored(side)]
    collision = [
        *frusta([(under, circle(p.head)), (floor, circle(p.head))], OCTAGONAL),
        jaw,
        _mirrored(jaw),
    ]
    if p.closed:
        low = [(ROOM, FLOOR), (ROOM, -FLOOR), (p.head - p.bevel, -FLOOR), (p.head - p.bevel, FLOOR)]
        high = [(x, math.copysign(MOUTH, y)) for x, y in low]
        end = loft(
            [np.array([(*point, z) for point in ring]) for ring, z in ((low, floor), (high, top))]
        )
        visual += [end, _mirrored(end)]
        collision += [end, _mirrored(end)]
    return PartDescription("head", joined(*visual), p.material, tuple(collision))


def _thread(p: ScrewParams) -> PartDescription:
    """Makes the thread below the head; the block around it keeps it from all contact."""
    top, bottom = GAP, GAP + 0.003 - p.seat * 0.6
    turns = [(bottom + 0.0, circle(0.7 * p.thread))]
    z, k = bottom + 0.002, 0
    while z < top - 0.002:
        turns.append((z, circle(p.thread - 0.0012 * (k % 2))))
        z, k = z + 0.002, k + 1
    turns.append((top, circle(p.thread)))
    return PartDescription("thread", section_loft(turns, 3), p.material)


def build(params: ScrewParams, name: str) -> ModelDescription:
    """Returns the screw as a model of two links, `block` and `screw`, and the joint `turn`."""
    _, floor, top = params.levels
    block = LinkDescription("block", (_block(params),))
    screw = LinkDescription("screw", (_head(params), _thread(params)), (0.0, 0.0, params.seat))
    points = {
        "slot": (screw, (0.0, 0.0, floor)),
        "left": (screw, (-ROOM, 0.0, floor)),
        "right": (screw, (ROOM, 0.0, floor)),
        "top": (screw, (0.0, 0.0, top)),
        "base": (block, (0.0, 0.0, 0.0)),
    }
    turn = JointDescription(
        name="turn",
        kind="screw",
        parent="block",
        child="screw",
        axis=(0.0, 0.0, -1.0),
        limits=(-RANGE, RANGE),
        resistance=params.resistance,
        inertia=INERTIA,
        lead=params.lead,
    )
    return jointed_model("screw", name, (block, screw), turn, points)


BLACK = HARD_STEEL.coloured(0.16, 0.17, 0.19)

CATALOGUE = {
    "wood_screw": ScrewParams(),
    "machine_screw": ScrewParams(
        head=0.0185, under=0.006, lead=0.003, base=0.042, base_height=0.050, base_corners=ROUND,
        material=BLACK, base_material=CAST_IRON,
    ),
    "drain_plug": ScrewParams(
        head=0.024, closed=True, bevel=0.002, lead=0.003, base=0.050, base_height=0.045,
        base_corners=OCTAGONAL, material=HARD_BRASS,
        base_material=CAST_IRON.coloured(0.22, 0.33, 0.42),
    ),
    "clamp_screw": ScrewParams(
        head=0.0195, under=0.003, closed=True, lead=0.006, base_height=0.062,
        material=HARD_STEEL.coloured(0.78, 0.72, 0.45), base_material=CAST_IRON,
    ),
    "cover_screw": ScrewParams(
        head=0.022, bevel=0.0025, lead=0.005, base=0.047, base_height=0.048, base_corners=ROUND,
        material=HARD_BRASS,
    ),
    "coin_slot_cap": ScrewParams(
        head=0.0255, under=0.0025, closed=True, bevel=0.003, lead=0.004, base=0.052,
        base_height=0.058, base_corners=OCTAGONAL, material=BLACK,
        base_material=CAST_IRON.coloured(0.55, 0.56, 0.58),
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> ScrewParams:
    """Returns the parameters of a random plausible screw."""
    return ScrewParams(
        head=rng.uniform(0.018, 0.0255),
        under=rng.uniform(0.0025, 0.0065),
        closed=bool(rng.random() < 0.5),
        bevel=rng.uniform(0.0008, 0.003),
        thread=rng.uniform(0.006, 0.010),
        lead=rng.uniform(0.0025, 0.006),
        base=rng.uniform(0.042, 0.052),
        base_height=rng.uniform(0.044, 0.065),
        base_corners=(ROUND, OCTAGONAL, SQUARE)[rng.integers(3)],
        resistance=rng.uniform(0.4, 1.2),
        material=(HARD_STEEL, HARD_BRASS)[rng.integers(2)],
        base_material=(PINE, CAST_IRON)[rng.integers(2)],
    )


ALONG = (-0.010, -0.006, 0.0, 0.006, 0.010)
"""Distances from the middle of the slot along it at which its width is measured, m."""


def slot_width(geometry: ModelGeometry) -> Values:
    """Returns the least width of the slot, halfway between `slot` and `top`, m."""
    along, axis = geometry.axis("left", "right"), geometry.axis("slot", "top")
    across = np.cross(axis, perpendicular(along, axis))
    middle = (geometry.p_M["slot"] + geometry.p_M["top"]) / 2
    return {"": min(sum(gap(geometry, middle + x * along, across)) for x in ALONG)}


def lean(geometry: ModelGeometry) -> Values:
    """Returns the angle of the slot's walls from the axis, one half of that between them, rad."""
    along, axis = geometry.axis("left", "right"), geometry.axis("slot", "top")
    across = np.cross(axis, perpendicular(along, axis))
    slot, top = geometry.p_M["slot"], geometry.p_M["top"]
    depth = float(np.linalg.norm(top - slot))
    low, high = (sum(gap(geometry, slot + t * (top - slot), across)) for t in (0.25, 0.75))
    return {"": math.atan2(high - low, depth)}  # both walls, over half of the depth


RULES = (
    Rule(
        "width of the slot at half its depth",
        slot_width,
        "mm",
        low=0.0060,
        high=0.0080,
        reason="the package's bits have 7.6 mm there as they sit; one that stands on the floor "
        "turns nothing, and one that is hardly in slips out",
        remedy="Else import its mesh with more or finer convex pieces (--pieces, --concavity), so "
        "that none of them fills the slot.",
        scales=True,
    ),
    Rule(
        "lean of the slot's walls",
        lean,
        "deg",
        low=math.radians(20),
        high=math.radians(40),
        reason="the flanks of the package's bits lean by 30 degrees, and touch the walls by edges "
        "alone if these differ",
        remedy="Give the slot walls that lean like the bits' flanks.",
    ),
    right_angles(
        ("slot", "top"),
        ("left", "right"),
        reason="the expert aligns the screwdriver with both axes, within 0.5 degrees each",
        remedy="Place `left` and `right` at one height, `top` straight above `slot`.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "slot": Meaning("the middle of the slot's floor"),
        "left": Meaning("one end of the slot, at its floor"),
        "right": Meaning("the other end of the slot, at its floor"),
        "top": Meaning("straight above `slot`, level with the top of the head"),
        "base": Meaning("the middle of the underside of the block"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    rules=RULES,
)
