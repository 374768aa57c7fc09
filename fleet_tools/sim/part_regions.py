"""The parts of a tool, as regions about lines through its keypoints."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.config.tasks import ToolPart
from fleet_tools.sim.attribution import locate
from fleet_tools.sim.catalog import Model


@dataclass(frozen=True, eq=False)
class PartRegions:
    """The corners of the parts' lines, one part after the other.

    Attributes:
        names: Names of the parts.
        last_corner: (n,), index after the last corner of each part.
        within_m: (n,), radius of each part about its line.
        bodies: Bodies on which corners are.
        body: (corners,), index in `bodies` for each corner.
        p_BK: (corners, 3), position of each corner in its body, m.
    """

    names: tuple[str, ...]
    last_corner: np.ndarray
    within_m: np.ndarray
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
        corners = [tool.keypoint(name) for part in parts.values() for name in part.keypoints]
        of_corner = [int(plant.GetBodyByName(k.link, instance).index()) for k in corners]
        bodies = tuple(dict.fromkeys(of_corner))
        return cls(
            names=tuple(parts),
            last_corner=np.cumsum([len(part.keypoints) for part in parts.values()]),
            within_m=np.array([part.within_m for part in parts.values()]),
            bodies=bodies,
            body=np.array([bodies.index(body) for body in of_corner]),
            p_BK=np.array([keypoint.position for keypoint in corners]),
        )

    def corners(self, X_WB: list[RigidTransform]) -> np.ndarray:
        """Returns the corners in the world, (corners, 3), m."""
        p_WK = np.empty_like(self.p_BK)
        X_W = np.array([X_WB[body].GetAsMatrix34() for body in self.bodies])
        locate(X_W, self.body, self.p_BK, p_WK)
        return p_WK
