"""A model of the package that shows where the keypoints of a family are."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.solids import Solid, joined
from fleet_tools.sim.catalog import Kind


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
