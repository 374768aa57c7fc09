"""The parts of a tool, as regions about lines through its keypoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.config.tasks import ToolPart
from fleet_tools.sim.attribution import Regions
from fleet_tools.sim.catalog import Model
from fleet_tools.utils.straight_line import pack


@dataclass(frozen=True, eq=False)
class PartRegions:
    """The parts of a tool in a plant.

    Attributes:
        names: Names of the parts.
        bodies: Bodies of the plant to which the parts belong.
        packed: Their `fleet_tools.sim.attribution.Regions`, with indices in `bodies`.
    """

    names: tuple[str, ...]
    bodies: tuple[int, ...]
    packed: tuple[Regions]

    @classmethod
    def of(
        cls,
        parts: Mapping[str, ToolPart],
        plant: MultibodyPlant,
        instance: ModelInstanceIndex,
        tool: Model,
    ) -> "PartRegions":
        """Finds the keypoints of a tool in a plant.

        Args:
            parts: Parts by name.
            plant: Plant with the tool.
            instance: Model instance of the tool.
            tool: The tool.

        Raises:
            UnknownNameError: The tool lacks a keypoint.
        """
        corners = [name for part in parts.values() for name in part.keypoints]
        sides = [name for part in parts.values() for name in _side(part)]
        points = [tool.keypoint(name) for name in (*corners, *sides)]
        of_point = [int(plant.GetBodyByName(k.link, instance).index()) for k in points]
        bodies = tuple(dict.fromkeys(of_point))
        facing = [part.facing for part in parts.values()]
        regions = Regions(
            body=tuple(bodies.index(body) for body in of_point),
            p_BK=np.array([keypoint.position for keypoint in points]),
            last_corner=tuple(accumulate(len(part.keypoints) for part in parts.values())),
            within=np.array([part.within_m for part in parts.values()]),
            depth=np.array([np.inf if side is None else side.depth_m for side in facing]),
        )
        return cls(tuple(parts), bodies, pack(regions))


def _side(part: ToolPart) -> tuple[str, str, str]:
    """Returns a part's axis and front; the same keypoint thrice where it faces no side."""
    if part.facing is None:
        return part.keypoints[0], part.keypoints[0], part.keypoints[0]
    start, end = part.facing.axis
    return start, end, part.facing.point
