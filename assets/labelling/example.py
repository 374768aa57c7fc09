"""A model of the package that shows where the keypoints of a family are."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.labelling.faces import size
from fleet_tools.assets.solids import Solid, joined
from fleet_tools.sim.catalog import Kind

SHARE, GAP = 0.6, 0.15
"""Size of an example beside a surface, and its distance, relative to the surface's longest side."""


@dataclass(frozen=True, eq=False)
class Example:
    """A labelled model.

    Attributes:
        name: Its name.
        surface: Its surface in M, with joints at their defaults, m.
        keypoints: Its keypoints in M, (3,) each, m.
    """

    name: str
    surface: Solid
    keypoints: dict[str, np.ndarray]

    def beside(self, surface: Solid) -> "Example":
        """Returns a smaller or larger one beside a surface, of whose size it is a fixed share.

        Args:
            surface: The surface, in M, m.
        """
        factor = SHARE * size(surface) / size(self.surface)
        low, high = surface.bounds()
        own_low, own_high = (factor * each for each in self.surface.bounds())
        offset = (low + high - own_low - own_high) / 2
        axis = 2 if (high - low)[2] <= (high - low)[0] else 0  # along the shorter side
        offset[axis] = low[axis] - own_high[axis] - GAP * size(surface)
        placed = self.surface.transformed(factor * np.eye(3), offset)
        return Example(
            self.name,
            placed,
            {name: factor * point + offset for name, point in self.keypoints.items()},
        )


def find_example(kind: Kind, family: str) -> Example | None:
    """Returns the first model that the package generates of a family; None if there is none."""
    from fleet_tools.assets.families import FAMILIES, FamilyName, find_family

    known: dict[str, FamilyName] = {name: name for name in FAMILIES}
    if family not in known:
        return None
    module = find_family(known[family])
    member, params = next(iter(module.CATALOGUE.items()))
    model = module.build(params, member)
    if model.kind != kind:
        return None
    origins = {link.name: np.array(link.origin) for link in model.links}
    solids = [
        part.solid.transformed(np.eye(3), origins[link.name])
        for link in model.links
        for part in link.parts
    ]
    keypoints = {
        label: origins[point.link] + np.array(point.position)
        for label, point in model.keypoints.items()
    }
    return Example(member, joined(*solids), keypoints)
