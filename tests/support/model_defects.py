"""Defects of models, from which the bounds of rules are measured, and with which they are tested.

A defect changes the description of a model; see `benchmarks/model_limits.py`.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fleet_tools.assets.model_description import (
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
    as_position,
)
from fleet_tools.assets.solids import MassProperties, Solid, loft
from fleet_tools.config.geometry import Pose

Change = Callable[[ModelDescription], ModelDescription]
"""Returns a model with a defect."""


def keypoints_moved(*names: str, by: tuple[float, float, float]) -> Change:
    """Returns a change that moves keypoints by a vector, m."""

    def change(model: ModelDescription) -> ModelDescription:
        moved = {
            name: KeypointDescription(
                point.link, as_position(np.add(point.position, by if name in names else (0, 0, 0)))
            )
            for name, point in model.keypoints.items()
        }
        return replace(model, keypoints=moved)

    return change


def links_changed(change: Callable[[LinkDescription], LinkDescription]) -> Change:
    """Returns a change of every link."""
    return lambda model: replace(model, links=tuple(map(change, model.links)))


def masses_changed(mass: float = 1.0, inertia: float = 1.0, x: float = 0.0) -> Change:
    """Returns a change that scales mass and inertia, and moves the centre of mass along x, m."""

    def change(link: LinkDescription) -> LinkDescription:
        given = link.mass_properties()
        centre = given.centre + np.array([x, 0.0, 0.0])
        return replace(
            link, inertial=MassProperties(mass * given.mass, centre, inertia * given.inertia)
        )

    return links_changed(change)


def collision_changed(part: str, change: Callable[[Solid], Solid]) -> Change:
    """Returns a change of the collision geometry of one part."""

    def of_part(given: PartDescription) -> PartDescription:
        if given.name != part:
            return given
        return replace(given, collision=tuple(map(change, given.collision)), collision_digits=17)

    return links_changed(lambda link: replace(link, parts=tuple(map(of_part, link.parts))))


def blunt_edge(thickness: float) -> Change:
    """Returns a change that makes a level spatula's blade as thick at the edge, m."""

    def change(solid: Solid) -> Solid:
        x, y, z = solid.vertices.T
        upper_edge = (x > x.max() - 1e-6) & (z < z.max() - 1e-6)
        raised = np.where(upper_edge, z.max() - thickness, z)
        return Solid(np.column_stack([x, y, raised]), solid.triangles)

    return collision_changed("blade", change)


def part_scaled(part: str, x: float = 1.0, y: float = 1.0) -> Change:
    """Returns a change that scales the collision geometry of one part along x and y."""
    return collision_changed(
        part, lambda solid: Solid(solid.vertices * [x, y, 1.0], solid.triangles)
    )


def prism(sides: int) -> Callable[[Solid], Solid]:
    """Returns a change of a solid to a regular prism with as many sides and flats 40 mm apart."""

    def change(solid: Solid) -> Solid:
        low, high = solid.vertices[:, 2].min(), solid.vertices[:, 2].max()
        angles = np.pi / 2 + (2 * np.arange(sides) + 1) * np.pi / sides
        outline = 0.020 / np.cos(np.pi / sides) * np.column_stack([np.cos(angles), np.sin(angles)])
        return loft([np.column_stack([outline, np.full(sides, z)]) for z in (low, high)])

    return change


def held_at(z: float) -> Change:
    """Returns a change that has a tool held at z, m."""
    return held_in(Pose(translation_m=(0.0, 0.0, z)))


def held_in(grasp: Pose) -> Change:
    """Returns a change of the grasp of a tool."""
    return lambda model: replace(model, grasp=grasp)


def held_rolled(degrees: float) -> Change:
    """Returns a change that rolls the hand about the handle: at 180 its palm is on the far side."""
    return held_in(Pose(rpy_deg=(degrees, 0.0, 0.0)))


def without(keypoint: str) -> Change:
    """Returns a change that removes a keypoint."""

    def change(model: ModelDescription) -> ModelDescription:
        rest = {name: point for name, point in model.keypoints.items() if name != keypoint}
        return replace(model, keypoints=rest)

    return change


def raised(model: ModelDescription) -> ModelDescription:
    """Returns an object that floats 10 mm above the table."""
    links = tuple(
        replace(link, origin=as_position(np.add(link.origin, (0, 0, 0.01)))) for link in model.links
    )
    return replace(model, links=links)
