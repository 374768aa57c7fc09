"""Where a part of the tool has to touch the object for its motion to count.

A part may be confined to a place about keypoints of the object, and may count only while the tool
bears on one of its links, as a lever does on its fulcrum.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import BodyIndex

from fleet_tools.config.tasks import ToolPart
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.attribution import TOOL, distance_to_polyline
from fleet_tools.sim.catalog import Model

BEARING_SHARE = 0.5
"""Least part of the load that the link must bear."""

PartContact = tuple[int, int, np.ndarray, np.ndarray]
"""Link, agent, p_WC (m), and the wrench on the link at C: moment (N m), then force (N), in W."""


class PlaceOnObject(NamedTuple):
    """The place on an object where a part of the tool has to touch it.

    Attributes:
        part: Index of the part.
        corners: Link, by its index in the object, and position in it, m, of each corner of a line.
        within_m: Largest distance from the line, m.
    """

    part: int
    corners: tuple[tuple[int, np.ndarray], ...]
    within_m: float


class Bearing(NamedTuple):
    """The link of an object on which the tool has to bear for a part to count.

    Attributes:
        part: Index of the part.
        link: The link, by its index in the object.
    """

    part: int
    link: int


class Places(NamedTuple):
    """Where parts of the tool have to touch the object, and on what the tool has to bear.

    Attributes:
        on_object: Places of the parts that have one.
        bearings: Bearings of the parts that have one.
    """

    on_object: tuple[PlaceOnObject, ...]
    bearings: tuple[Bearing, ...]

    def not_counted(
        self,
        contacts: Sequence[PartContact],
        on_fixed: Mapping[int, Sequence[float]],
        X_WL: np.ndarray,
    ) -> set[tuple[int, int]]:
        """Returns which contacts do not count for which parts, as pairs of their indices.

        Args:
            contacts: Contacts on moving links.
            on_fixed: Force of the tool on each fixed link, (3,), N.
            X_WL: (links, 3, 4), poses of the object's links, m.
        """
        found = misplaced(self.on_object, [p_WC for _, _, p_WC, _ in contacts], X_WL)
        if self.bearings:
            load = [0.0, 0.0, 0.0]
            for _, agent, _, F in contacts:
                if agent == TOOL:
                    add_to(load, F[3:])
            parts = unsupported(self.bearings, on_fixed, load)
            found |= {(k, part) for k in range(len(contacts)) for part in parts}
        return found


def places_of_parts(
    parts: Mapping[str, ToolPart], bodies: Sequence[int], plant: MultibodyPlant, model: Model
) -> Places:
    """Returns the places and bearings of those parts that have one.

    Args:
        parts: Parts of the tool by name.
        bodies: Body index of each link of the object.
        plant: The plant.
        model: The object.

    Raises:
        UnknownNameError: The object lacks a keypoint, or a fixed link.
    """
    welded = {body.index() for body in plant.GetBodiesWeldedTo(plant.world_body())}
    of_name = {plant.get_body(BodyIndex(body)).name(): link for link, body in enumerate(bodies)}
    places, bearings = [], []
    for row, part in enumerate(parts.values()):
        if part.at is not None:
            points = [model.keypoint(name) for name in part.at.keypoints]
            corners = tuple((of_name[k.link], np.array(k.position)) for k in points)
            places.append(PlaceOnObject(row, corners, part.at.within_m))
        if part.bears_on is not None:
            fixed = {name: k for name, k in of_name.items() if BodyIndex(bodies[k]) in welded}
            if part.bears_on not in fixed:
                raise UnknownNameError(f"fixed link of {model.name}", part.bears_on, fixed)
            bearings.append(Bearing(row, fixed[part.bears_on]))
    return Places(tuple(places), tuple(bearings))


def misplaced(
    places: Sequence[PlaceOnObject], points: Sequence[np.ndarray], X_WL: np.ndarray
) -> set[tuple[int, int]]:
    """Returns which contacts do not count for which parts, as pairs of their indices.

    Args:
        places: Places of the parts that have one.
        points: Where contacts act, (3,) each, m, in the world.
        X_WL: (links, 3, 4), poses of the object's links, m.
    """
    found = set()
    for place in places:
        line = np.array([_in_world(X_WL[link], p_LK) for link, p_LK in place.corners])
        for k, point in enumerate(points):
            if distance_to_polyline(point, line) > place.within_m:
                found.add((k, place.part))
    return found


def unsupported(
    bearings: Sequence[Bearing], forces: Mapping[int, Sequence[float]], load: Sequence[float]
) -> set[int]:
    """Returns which parts do not count, because the tool does not bear on their link.

    A lever presses its fulcrum against the force on its load, with the force of the hand beside.
    So the force on the link must have a component against the load of at least half of it; the
    other half is for what is read while contact settles.

    Args:
        bearings: Bearings of the parts that have one.
        forces: Force of the tool on links of the object, (3,) each, N, by index of the link.
        load: (3,), its force on all moving links, N.
    """
    x, y, z = load
    least = BEARING_SHARE * (x * x + y * y + z * z)
    found = set()
    for part, link in bearings:
        f = forces.get(link, (0.0, 0.0, 0.0))
        if f[0] * x + f[1] * y + f[2] * z > -least:
            found.add(part)
    return found


def add_to(total: list[float], force: np.ndarray) -> None:
    """Adds a force, (3,), to a sum in place."""
    for i, each in enumerate(force.tolist()):
        total[i] += each


def _in_world(X_WL: np.ndarray, p_LK: np.ndarray) -> list[float]:
    """Returns the position of a point of a link; by sums whose order no library chooses."""
    rows, p = X_WL.tolist(), p_LK.tolist()
    return [row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3] for row in rows]
