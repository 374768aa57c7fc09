"""Families of tools and objects: what their keypoints mean, what the expert needs, their generator.

Each module or package in this folder is a family, named after it, and declares one `FAMILY`. It is
imported on demand; a new family is added by adding its file here, and nothing else lists it.
"""

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fleet_tools.errors import ConfigError, require_name

if TYPE_CHECKING:  # --help answers without numpy
    import numpy as np

    from fleet_tools.assets.model_description import ModelDescription
    from fleet_tools.assets.rules import Rule
    from fleet_tools.sim.catalog import Kind


@dataclass(frozen=True)
class KeypointDerivation:
    """Rule by which a keypoint follows from others.

    Attributes:
        how: The construction: "behind" is straight through the body, "across" straight over a gap,
            "middle" halfway between two keypoints.
        of: The keypoints that it needs: one, or two for "middle".
    """

    how: Literal["behind", "across", "middle"]
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
    """Meaning of a keypoint.

    Attributes:
        text: A line for the person who labels.
        derived: How it follows from others; None if it has to be shown.
    """

    text: str
    derived: KeypointDerivation | None = None


def behind(keypoint: str) -> KeypointDerivation:
    """The point where a line through a keypoint, at a right angle to the surface, comes out."""
    return KeypointDerivation("behind", (keypoint,))


def across(keypoint: str) -> KeypointDerivation:
    """The point where a line from a keypoint, at a right angle to the surface, meets it again."""
    return KeypointDerivation("across", (keypoint,))


def middle(one: str, other: str) -> KeypointDerivation:
    """The point halfway between two keypoints."""
    return KeypointDerivation("middle", (one, other))


HAND = Meaning("the middle of the handle, where the hand holds the tool; drag it to turn it")
"""Meaning of the grasp of a tool."""


@dataclass(frozen=True)
class HandAlignment:
    """The grasp of a tool, and the tolerance within which the expert can use it.

    Attributes:
        ahead: Keypoint of the working end, to which x of the hand points.
        down: Axis between keypoints that points away from the palm, as far as the handle allows. It
            is the direction of use: of the blow of a hammer, or down to the table.
        working_end: Two or more keypoints between which nobody holds the tool.
        tilt_deg: Largest angle of z of the hand from the direction of use.
        lean_deg: Largest angle of z of the hand to a side of the handle and the direction of use.
        turn_deg: Largest angle of x of the hand from `ahead`, about the direction of use.
    """

    ahead: str
    down: tuple[str, str]
    working_end: tuple[str, ...] = ()
    tilt_deg: float = 110.0
    lean_deg: float = 90.0
    turn_deg: float = 180.0


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        kind: Whether its models are tools or objects.
        keypoints: Meanings of the keypoints, in the order in which they are best labelled: those
            from which others follow come first.
        catalogue: Parameters of the members that ship with the package, by name.
        build: Returns the model with given parameters, of a class of the family's own, and a name.
        draw: Returns parameters of a random plausible member.
        mass_bounds: Least and greatest mass of random members, kg; others are drawn again.
        rules: What the expert needs of its models, beside what every model needs.
        alignment: How a tool lies in the hand; None for objects.
        working_parts: Beginnings of the names of the parts of a tool that do the work.
    """

    kind: "Kind"
    keypoints: Mapping[str, Meaning]
    catalogue: Mapping[str, Any]
    build: "Callable[[Any, str], ModelDescription]"
    draw: "Callable[[np.random.Generator], Any]"
    mass_bounds: tuple[float, float] = (0.0, math.inf)
    rules: "tuple[Rule, ...]" = ()
    alignment: HandAlignment | None = None
    working_parts: tuple[str, ...] = ()

    def member(self, name: str) -> "ModelDescription":
        """Returns a model that ships with the package.

        Raises:
            UnknownNameError: There is no such member.
        """
        require_name("member of the family", name, self.catalogue)
        return self.build(self.catalogue[name], name)

    def sample(self, rng: "np.random.Generator") -> Any:
        """Returns parameters of a random plausible member, within the bounds of its mass.

        Raises:
            RuntimeError: None of 100 draws lies within the bounds.
        """
        lightest, heaviest = self.mass_bounds
        for _ in range(100):
            params = self.draw(rng)
            if lightest <= self.build(params, "draft").mass <= heaviest:
                return params
        raise RuntimeError(
            f"expected a mass between {lightest} and {heaviest} kg; 100 random models were lighter "
            "or heavier"
        )


def family_names() -> tuple[str, ...]:
    """Returns the names of all families, sorted; a user's own family of models has no file."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def find_family(name: str) -> Family:
    """Imports a family.

    Raises:
        UnknownNameError: There is no such family.
        ConfigError: Its module declares none.
    """
    require_name("family", name, family_names())
    module = importlib.import_module(f"{__name__}.{name}")
    family = getattr(module, "FAMILY", None)
    if not isinstance(family, Family):
        raise ConfigError(
            f"{module.__file__} has no FAMILY; each module of this folder must define one."
        )
    return family


def known_family(name: str) -> Family | None:
    """Imports a family; None if it is one of a user's own, of which there are models alone."""
    return find_family(name) if name in family_names() else None


def meanings_of(family: str, keypoints: Sequence[str]) -> dict[str, Meaning]:
    """Returns the meanings of a family's keypoints, none for a user's own family."""
    found = known_family(family)
    known = {} if found is None else found.keypoints
    names = [*(name for name in known if name in keypoints), *keypoints]
    return {name: known.get(name, Meaning("")) for name in names}
