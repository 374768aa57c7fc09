"""What the keypoints of each family mean, and which follow from others.

Keypoints are listed in the order in which they are best labelled: those from which others follow
come first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

How = Literal["behind", "across", "middle"]
"""behind: straight through the body; across: straight over a gap; middle: halfway between two."""


@dataclass(frozen=True)
class Derivation:
    """How a keypoint follows from others.

    Attributes:
        how: The construction.
        of: The keypoints that it needs: one, or two for "middle".
    """

    how: How
    of: tuple[str, ...]

    @property
    def words(self) -> str:
        """The construction in words, such as "straight behind head"."""
        words = {
            "behind": "straight behind {}",
            "across": "straight across from {}",
            "middle": "in the middle of {} and {}",
        }
        return words[self.how].format(*self.of)


@dataclass(frozen=True)
class Meaning:
    """What a keypoint is.

    Attributes:
        text: A line for the person who labels.
        derived: How it follows from others; None if it has to be shown.
        partner: The keypoint of which it is the mirror image in symmetric models.
    """

    text: str
    derived: Derivation | None = None
    partner: str | None = None


def behind(keypoint: str) -> Derivation:
    """The point where a line through a keypoint, at a right angle to the surface, comes out."""
    return Derivation("behind", (keypoint,))


def across(keypoint: str) -> Derivation:
    """The point where a line from a keypoint, at a right angle to the surface, meets it again."""
    return Derivation("across", (keypoint,))


def middle(one: str, other: str) -> Derivation:
    """The point halfway between two keypoints."""
    return Derivation("middle", (one, other))


MEANINGS: Mapping[str, Mapping[str, Meaning]] = {
    "hammer": {
        "head": Meaning("the middle of the face that strikes"),
        "side": Meaning("the other side of the head: side to head is the blow", behind("head")),
        "tail": Meaning("the end of the handle"),
    },
    "wrench": {
        "left": Meaning("the middle of the left pad, seen from the palm", partner="right"),
        "right": Meaning("the pad opposite to it", across("left"), partner="left"),
        "jaw": Meaning("the middle of the mouth, where the nut is", middle("left", "right")),
        "upper": Meaning("on the flat of the head that faces the palm", partner="lower"),
        "lower": Meaning("on the flat that faces the nut's base", behind("upper"), "upper"),
    },
    "spatula": {
        "edge": Meaning("the middle of the thin front edge, on the underside"),
        "heel": Meaning("where the blade begins at the neck, on the underside"),
        "sole": Meaning("the middle of the blade's underside", middle("edge", "heel")),
        "face": Meaning("on the upper side of the blade, above the sole", behind("sole")),
        "tail": Meaning("the end of the handle"),
    },
    "knife": {
        "heel": Meaning("the end of the edge near the handle"),
        "tip": Meaning("the front end of the edge"),
        "edge": Meaning("the middle of the edge", middle("heel", "tip")),
        "spine": Meaning("on the back of the blade, above the edge", behind("edge")),
    },
    "slab": {
        "base": Meaning("the middle of the underside"),
        "top": Meaning("the middle of the upper side", behind("base")),
    },
    "nail": {
        "head": Meaning("the middle of the nail's head"),
        "base": Meaning("where the nail goes into the top of its block"),
    },
    "nut": {
        "nut": Meaning("the nut's axis, at half the height of its flats"),
        "left": Meaning("the middle of a flat", partner="right"),
        "right": Meaning("the middle of the opposite flat", behind("left"), partner="left"),
        "top": Meaning("the highest point of the axis"),
        "base": Meaning("the middle of the underside of the base"),
    },
    "pair": {
        "left": Meaning("the middle of the left block's upper side", partner="right"),
        "right": Meaning("the middle of the right block's upper side", partner="left"),
        "left_foot": Meaning("the middle of its underside", behind("left"), "right_foot"),
        "right_foot": Meaning("the middle of its underside", behind("right"), "left_foot"),
        "left_seam": Meaning("the foot of the seam, in the middle, on the left block"),
        "right_seam": Meaning("the same point on the right block"),
        "seam_end": Meaning("the end of the seam, at its foot"),
    },
}
"""Meanings of the keypoints of the package's families."""


@dataclass(frozen=True)
class Working:
    """How a tool of a family lies in the hand.

    Attributes:
        ahead: Keypoint of the working end, to which x of the hand points.
        down: Axis between keypoints that points away from the palm, as far as the handle allows.
    """

    ahead: str
    down: tuple[str, str]


WORKING: Mapping[str, Working] = {
    "hammer": Working("head", ("side", "head")),
    "wrench": Working("jaw", ("upper", "lower")),
    "spatula": Working("edge", ("face", "sole")),
    "knife": Working("tip", ("spine", "edge")),
}
"""How the package's tools lie in the hand, by family."""

HAND = Meaning("the middle of the handle, where the hand holds the tool; drag it to turn it")
"""What the grasp of a tool means."""


def meanings_of(family: str, keypoints: list[str]) -> dict[str, Meaning]:
    """Returns the meanings of a family's keypoints; those of a family of one's own have no text.

    Args:
        family: Name of the family.
        keypoints: Names of the keypoints that are to be labelled.
    """
    known = MEANINGS.get(family, {})
    names = [*(name for name in known if name in keypoints), *keypoints]
    return {name: known.get(name, Meaning("")) for name in names}
