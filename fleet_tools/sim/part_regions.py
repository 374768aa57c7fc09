"""The parts of a tool, as regions about lines through its keypoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.config.tasks import ToolPart
from fleet_tools.sim.attribution import Parts, locate
from fleet_tools.sim.catalog import Model
from fleet_tools.utils.straight_line import Packed


@dataclass(frozen=True, eq=False)
class PartRegions:
    """The corners of the parts' lines, one part after the other, and the sides they face.

    Attributes:
        names: Names of the parts.
        corners: Number of corners of all lines.
        bounds: Limits of the parts, see `attribution.Parts`.
        bodies: Bodies on which the points are: all corners, then start and end of the axis, and
            front, of each part.
        points: Index in `bodies` of each point, and its position in it, see `locate`.
    """

    names: tuple[str, ...]
    corners: int
    bounds: Packed
    bodies: tuple[int, ...]
    points: Packed

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
        bounds = Packed(
            tuple(accumulate(len(part.keypoints) for part in parts.values())),
            np.array([part.within_m for part in parts.values()]),
            np.array([np.inf if side is None else side.depth_m for side in facing]),
        )
        body = tuple(bodies.index(body) for body in of_point)
        located = Packed(body, np.array([keypoint.position for keypoint in points]))
        return cls(tuple(parts), len(corners), bounds, bodies, located)

    def locate(self, X_WB: np.ndarray) -> Parts:
        """Returns the parts in the world.

        Args:
            X_WB: (bodies, 3, 4), poses [R_WB | p_WB] of the `bodies`.
        """
        p_WK = locate(X_WB, self.points)
        return Parts(p_WK[: self.corners], p_WK[self.corners :].reshape(-1, 3, 3), self.bounds)


def _side(part: ToolPart) -> tuple[str, str, str]:
    """Returns a part's axis and front; the same keypoint thrice where it faces no side."""
    if part.facing is None:
        return part.keypoints[0], part.keypoints[0], part.keypoints[0]
    start, end = part.facing.axis
    return start, end, part.facing.point
