"""How scenes vary: what a task file says about each group of randomized quantities."""

from typing import Annotated, Any

import pydantic

from fleet_tools.config.distributions import Distribution, NameDistribution
from fleet_tools.config.ranges import RANGES, require_range
from fleet_tools.config.textures import PLAIN, texture_file
from fleet_tools.config.values import Value

DistributionVector3 = tuple[Distribution, Distribution, Distribution]
DistributionVector7 = Annotated[
    tuple[Distribution, ...], pydantic.Field(min_length=7, max_length=7)
]


class RandomPose(Value):
    """A random pose: a translation, and roll, pitch and yaw about fixed axes."""

    translation_m: DistributionVector3 = (0.0, 0.0, 0.0)
    """Translation along x, y and z."""
    rpy_deg: DistributionVector3 = (0.0, 0.0, 0.0)
    """Roll, pitch and yaw."""


class Randomization(Value):
    """All that is drawn for a scene, apart from the choice of tool and object.

    Each field is a group; a group that is switched off by its name takes its nominal value. What
    can be drawn is in the range of its quantity (`fleet_tools.config.ranges`).
    """

    initial_joints_rad: DistributionVector7
    """Initial joint positions of the arm."""
    tool_in_hand: RandomPose = RandomPose()
    """X_EG, pose of the tool's grasp frame in the end effector; the identity is a perfect grasp."""
    object_pose: RandomPose = RandomPose()
    """X_WO, pose of the object's model frame in the world; the table top is at z = 0."""
    tool_mass_scale: Distribution = 1.0
    """Factor of the tool's mass and inertia."""
    object_mass_scale: Distribution = 1.0
    """Factor of the object's mass and inertia."""
    tool_friction_scale: Distribution = 1.0
    """Factor of the tool's coefficient of friction."""
    object_friction_scale: Distribution = 1.0
    """Factor of the object's coefficient of friction."""
    joint_resistance: dict[str, Distribution] = {}
    """Coulomb resistance of the object's named joints, N or N m."""
    cameras: dict[str, RandomPose] = {}
    """Extrinsics X_FC of the task's cameras, in the frame F (world or end effector) to which each
    is fixed; x points right in the image, y down, z into it."""
    tool_tint: DistributionVector3 = (1.0, 1.0, 1.0)
    """Factors of the tool's colours."""
    object_tint: DistributionVector3 = (1.0, 1.0, 1.0)
    """Factors of the object's colours."""
    table_tint: DistributionVector3 = (1.0, 1.0, 1.0)
    """Factors of the table's colours."""
    table_texture: NameDistribution = PLAIN
    """Names from `fleet_tools.config.textures.texture_names()`."""

    @pydantic.field_validator(*(name for name in RANGES if name != "push"))
    @classmethod
    def _in_range(cls, drawn: Any, info: pydantic.ValidationInfo) -> Any:
        assert info.field_name is not None
        return require_range(info.field_name, drawn)

    @pydantic.field_validator("table_texture")
    @classmethod
    def _textures_exist(cls, drawn: NameDistribution) -> NameDistribution:
        for name in (drawn,) if isinstance(drawn, str) else drawn.choice:
            texture_file(name)
        return drawn
