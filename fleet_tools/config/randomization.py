"""How scenes vary: what a task file may say about what is drawn, group by group."""

from typing import Annotated

import pydantic

from fleet_tools.config.distributions import Distribution, NameDistribution, PositiveDistribution
from fleet_tools.config.textures import PLAIN, texture_file
from fleet_tools.config.values import Value

DistributionVector3 = tuple[Distribution, Distribution, Distribution]
Tint = tuple[PositiveDistribution, PositiveDistribution, PositiveDistribution]
"""Scales red, green and blue."""
DistributionVector7 = Annotated[
    tuple[Distribution, ...], pydantic.Field(min_length=7, max_length=7)
]


class RandomPose(Value):
    """A pose whose six numbers are drawn: a translation, and roll, pitch, yaw about fixed axes."""

    translation_m: DistributionVector3 = (0.0, 0.0, 0.0)
    rpy_deg: DistributionVector3 = (0.0, 0.0, 0.0)


class Randomization(Value):
    """Everything that is drawn for a scene, apart from the choice of tool and object.

    Each field is a group that can be switched off by its name, and then takes its nominal value.
    """

    initial_joints_rad: DistributionVector7
    """The arm's joint positions at the start."""
    tool_in_hand: RandomPose = RandomPose()
    """Pose of the tool's grasp frame in the end effector; the identity is a perfect grasp."""
    object_pose: RandomPose = RandomPose()
    """X_WO, pose of the object's model frame in the world; the table's top is z = 0."""
    tool_mass_scale: PositiveDistribution = 1.0
    object_mass_scale: PositiveDistribution = 1.0
    tool_friction_scale: PositiveDistribution = 1.0
    object_friction_scale: PositiveDistribution = 1.0
    joint_resistance: dict[str, PositiveDistribution] = {}
    """Coulomb resistance of the object's named joints, N or N m."""
    cameras: dict[str, RandomPose] = {}
    """Extrinsics X_FC of the task's cameras, each in the frame F that it is fixed to: the world or
    the end effector. x points right in the picture, y down, z into it."""
    tool_tint: Tint = (1.0, 1.0, 1.0)
    object_tint: Tint = (1.0, 1.0, 1.0)
    table_tint: Tint = (1.0, 1.0, 1.0)
    table_texture: NameDistribution = PLAIN
    """One of `fleet_tools.config.textures.texture_names()`."""

    @pydantic.field_validator("table_texture")
    @classmethod
    def _textures_exist(cls, drawn: NameDistribution) -> NameDistribution:
        for name in (drawn,) if isinstance(drawn, str) else drawn.choice:
            texture_file(name)
        return drawn
