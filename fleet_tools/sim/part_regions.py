"""The parts of a tool, as regions about lines through its keypoints."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.config.tasks import ToolPart
from fleet_tools.sim.attribution import locate
from fleet_tools.sim.catalog import Model


@dataclass(frozen=True, eq=False)
class PartRegions:
    """The corners of the parts' lines, one part after the other, and the sides they face.

    Attributes:
        names: Names of the parts.
        last_corner: (n,), index after the last corner of each part.
        within_m: (n,), radius of each part about its line.
        depth_m: (n,), largest distance behind a part's front; inf where it faces no side.
        bodies: Bodies on which the points are: all corners, then start and end of the axis, and
            front, of each part.
        body: (points,), index in `bodies` of each point.
        p_BK: (points, 3), position of each point in its body, m.
    """

    names: tuple[str, ...]
    last_corner: np.ndarray
    within_m: np.ndarray
    depth_m: np.ndarray
    bodies: tuple[int, ...]
    body: np.ndarray
    p_BK: np.ndarray

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
        return cls(
            names=tuple(parts),
            last_corner=np.cumsum([len(part.keypoints) for part in parts.values()]),
            within_m=np.array([part.within_m for part in parts.values()]),
            depth_m=np.array([np.inf if side is None else side.depth_m for side in facing]),
            bodies=bodies,
            body=np.array([bodies.index(body) for body in of_point]),
            p_BK=np.array([keypoint.position for keypoint in points]),
        )

    def locate(self, X_WB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the corners, (corners, 3), and the sides, (n, 3, 3), in the world, m.

        A side has the start and the end of an axis, and the point behind which depth is measured.

        Args:
            X_WB: (bodies, 3, 4), poses [R_WB | p_WB] of the `bodies`.
        """
        p_WK = np.empty_like(self.p_BK)
        locate(X_WB, self.body, self.p_BK, p_WK)
        return p_WK[: self.last_corner[-1]], p_WK[self.last_corner[-1] :].reshape(-1, 3, 3)


def _side(part: ToolPart) -> tuple[str, str, str]:
    """Returns a part's axis and front; the same keypoint thrice where it faces no side."""
    if part.facing is None:
        return part.keypoints[0], part.keypoints[0], part.keypoints[0]
    start, end = part.facing.axis
    return start, end, part.facing.point
