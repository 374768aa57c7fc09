"""A model that shows where the keypoints of a family are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.assets.solids import Solid, joined
from fleet_tools.config.tasks import load_task
from fleet_tools.errors import FleetToolsError
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.labelling.labels import Identity
from fleet_tools.studio.labelling.picking import size

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


def find_example(identity: Identity, task: str | None = None) -> Example | None:
    """Returns a labelled model of a family; None if there is no other.

    That is the first model of the package that is generated. Of a family of one's own it is the
    first one that can be read, of the task's folder of models, or of the one in which the labelled
    model is.

    Args:
        identity: What is labelled.
        task: Name or path of a task that has such models.
    """
    return _generated(identity) or next(_neighbours(identity, task), None)


def _generated(identity: Identity) -> Example | None:
    from fleet_tools.assets.families import known_family

    family = known_family(identity.family)
    if family is None or family.kind != identity.kind:
        return None
    member = next(iter(family.catalogue))
    model = family.member(member)
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


def _neighbours(identity: Identity, task: str | None) -> Iterator[Example]:
    from fleet_tools.studio.labelling.subjects import read_surface

    kind, family = identity.kind, identity.family
    roots = [str(identity.folder.parents[2])]
    if task is not None and (assets := load_task(task).assets) is not None:
        roots.insert(0, assets)
    for root in roots:
        for folder in sorted((Path(root) / f"{kind}s" / family).glob("*/")):
            if folder.resolve() == identity.folder.resolve():
                continue
            try:
                read = read_surface(load_model(folder, kind))
            except FleetToolsError:
                continue
            known = [name for name in identity.keypoints if name in read.keypoints]
            yield Example(folder.name, read.surface, {name: read.keypoints[name] for name in known})
