"""Steep screws in a block: a press on the head turns them in, against a brake."""

import math
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families import Family, Meaning
from fleet_tools.assets.model_description import (
    NYLON,
    PINE,
    JointDescription,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
)
from fleet_tools.assets.solids import circle, frusta, rectangle

HEIGHT, PROTRUSION, TRAVEL = 0.05, 0.04, 0.025
"""Height of the block, of the head above it, and how far it goes in, m."""


@dataclass(frozen=True)
class SteepScrewParams:
    """The parameters of a steep screw.

    Attributes:
        lead: How far it goes in with one turn, m.
    """

    lead: float = 0.06


def build(params: SteepScrewParams, name: str) -> ModelDescription:
    """Returns the screw as a model of two links, `block` and `screw`, and the joint `drive`."""
    (block,) = frusta([(0.0, rectangle(0.05, 0.05)), (HEIGHT, rectangle(0.05, 0.05))], 1)
    (screw,) = frusta([(-0.01, circle(0.02)), (PROTRUSION, circle(0.02))], 2)
    drive = JointDescription(
        name="drive",
        kind="screw",
        parent="block",
        child="screw",
        axis=(0.0, 0.0, -1.0),
        limits=(0.0, 2 * math.pi * TRAVEL / params.lead),
        resistance=0.1,
        inertia=1e-4,
        lead=params.lead,
    )
    return ModelDescription(
        kind="object",
        family="steep_screw",
        name=name,
        links=(
            LinkDescription("block", (PartDescription("block", block, PINE, (block,)),)),
            LinkDescription(
                "screw", (PartDescription("screw", screw, NYLON, (screw,)),), (0.0, 0.0, HEIGHT)
            ),
        ),
        joints=(drive,),
        keypoints={
            "head": KeypointDescription("screw", (0.0, 0.0, PROTRUSION)),
            "base": KeypointDescription("block", (0.0, 0.0, HEIGHT)),
        },
    )


def draw(rng: np.random.Generator) -> SteepScrewParams:
    """Returns the parameters of a random plausible screw."""
    return SteepScrewParams(rng.uniform(0.055, 0.065))


FAMILY = Family(
    kind="object",
    keypoints={
        "head": Meaning("the middle of the screw's head"),
        "base": Meaning("where the screw goes into the top of its block"),
    },
    catalogue={"plain": SteepScrewParams()},
    build=build,
    draw=draw,
)
