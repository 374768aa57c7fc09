"""Push rods: a handle, across the end of which a post presses downwards with its round foot."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind
from fleet_tools.assets.model_description import (
    BEECH,
    STEEL,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
)
from fleet_tools.assets.parametric import GRIP, along_x
from fleet_tools.assets.rules import on_surface
from fleet_tools.assets.solids import circle, frusta


@dataclass(frozen=True)
class PushRodParams:
    """The parameters of a push rod.

    Attributes:
        reach: x of the post in T, m.
        foot: Radius of the foot, m.
    """

    reach: float = 0.15
    foot: float = 0.018


def build(params: PushRodParams, name: str) -> ModelDescription:
    """Returns the rod as a model of one link, `rod`, in the frame T."""
    axis = (params.reach, 0.0)
    handle = along_x(*frusta([(-0.1, circle(GRIP)), (params.reach + 0.015, circle(GRIP))], 2))
    post = frusta([(0.0, circle(0.012)), (0.045, circle(0.012))], 2, axis)
    foot = frusta([(0.045, circle(params.foot)), (0.06, circle(params.foot))], 2, axis)
    parts = (
        PartDescription("handle", handle, BEECH, (handle,)),
        PartDescription("post", post[0], STEEL, post),
        PartDescription("foot", foot[0], STEEL, foot),
    )
    points = {"foot": (*axis, 0.06), "back": (*axis, -GRIP), "tail": (-0.1, 0.0, 0.0)}
    return ModelDescription(
        kind="tool",
        family="push_rod",
        name=name,
        links=(LinkDescription("rod", parts),),
        keypoints={key: KeypointDescription("rod", point) for key, point in points.items()},
    )


def draw(rng: np.random.Generator) -> PushRodParams:
    """Returns the parameters of a random plausible rod."""
    return PushRodParams(rng.uniform(0.14, 0.16), rng.uniform(0.016, 0.02))


FAMILY = Family(
    kind="tool",
    keypoints={
        "foot": Meaning("the middle of the foot that presses"),
        "back": Meaning("the other side of the handle", behind("foot")),
        "tail": Meaning("the end of the handle"),
    },
    catalogue={"long": PushRodParams(), "short": PushRodParams(0.14)},
    build=build,
    draw=draw,
    rules=(
        on_surface(
            "foot",
            "back",
            high=0.001,
            reason="the foot meets the screw at its middle",
            remedy="Move `foot` onto the face that presses.",
        ),
    ),
    alignment=HandAlignment("foot", ("back", "foot")),
    working_parts=("foot",),
)
