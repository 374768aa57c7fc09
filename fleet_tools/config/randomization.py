"""Schema of a task file's randomization: one distribution for each varied quantity."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic

from fleet_tools.config.distributions import (
    DISTURBANCES,
    RANGES,
    Distribution,
    NameChoice,
    NameDistribution,
    Uniform,
    require_range,
)
from fleet_tools.config.file_access import texture_file
from fleet_tools.config.values import STORED_IF_SET, Value

DistributionVector3 = tuple[Distribution, Distribution, Distribution]


class RandomPose(Value):
    """A random pose: a translation, and roll, pitch and yaw about fixed axes."""

    translation_m: DistributionVector3 = (0.0, 0.0, 0.0)
    """Translation along x, y and z."""
    rpy_deg: DistributionVector3 = (0.0, 0.0, 0.0)
    """Roll, pitch and yaw."""


def _between(low: float, high: float) -> Uniform:
    return Uniform(uniform=(low, high))


AROUND = _between(-180.0, 180.0)
"""Any angle."""


PLACE = "place"
"""Name of the marked place beside the object's keypoints, where policies observe it."""


class RandomPlace(Value):
    """A random place on the table, seen from where the object's model frame is at the start."""

    distance_m: Distribution
    """Horizontal distance."""
    bearing_deg: Distribution = AROUND
    """Direction, an angle from the world's x about its z."""


MOUNT = "mount"
"""Stands for the pose of a camera that is where the robot has a mount for it, on its hand."""

READY = "ready"
"""Posture of every robot: the hand before it, looking down."""


TOOL_IN_HAND = RandomPose(
    translation_m=(_between(-0.020, 0.020), 0.0, _between(-0.003, 0.003)),
    rpy_deg=(_between(-40.0, 40.0), _between(-10.0, 10.0), _between(-12.0, 12.0)),
)
"""A grasp that slid along the handle, and turned about it and between the fingers.

With smaller ranges, policies solve tasks without seeing their tool (`docs/results/audit.md`)."""

OBJECT_POSE = RandomPose(
    translation_m=(_between(0.45, 0.65), _between(-0.20, 0.20), 0.0),
    rpy_deg=(0.0, 0.0, AROUND),
)
"""Anywhere on the table before the robot, at any angle."""


def _kind_of_pose(data: Any) -> str | None:
    match data:
        case str():
            return "mount"
        case RandomPose() | dict():
            return "RandomPose"
    return None


CameraPose = Annotated[
    Annotated[Literal["mount"], pydantic.Tag("mount")]
    | Annotated[RandomPose, pydantic.Tag("RandomPose")],
    pydantic.Discriminator(
        _kind_of_pose,
        custom_error_type="camera_pose",
        custom_error_message="expected 'mount', or a mapping with translation_m and rpy_deg",
    ),
]
"""X_FC of a camera; "mount" for the one that the robot's file gives."""


def _kind_of_joints(data: Any) -> str:
    return "posture" if isinstance(data, str) else "joints"


InitialJoints = Annotated[
    Annotated[str, pydantic.Tag("posture")]
    | Annotated[tuple[Distribution, ...], pydantic.Tag("joints")],
    pydantic.Discriminator(_kind_of_joints),
]
"""Joint positions of the robot, or the name of one of the postures of its file."""

EXTRINSICS: dict[str, CameraPose] = {
    "overhead": RandomPose(
        translation_m=(_between(0.98, 1.02), _between(-0.02, 0.02), _between(0.93, 0.97)),
        rpy_deg=(_between(-153.0, -149.0), _between(-2.0, 2.0), _between(88.0, 92.0)),
    ),
    "wrist": MOUNT,
}
"""Poses of `fleet_tools.config.cameras.CAMERAS`."""

MASS_SCALE, FRICTION_SCALE = _between(0.8, 1.2), _between(0.7, 1.3)
TINT = (_between(0.7, 1.2), _between(0.7, 1.2), _between(0.7, 1.2))
TABLE_TEXTURES = NameChoice(choice=("plain", "wood", "cloth", "stone", "tiles"))


class Randomization(Value):
    """All that is drawn for a scene, apart from the choice of tool and object.

    Each field is a group; a group that is switched off by its name takes its nominal value. What
    can be drawn is in the range of its quantity (`fleet_tools.config.distributions.RANGES`). A
    group that a task file leaves out is drawn by default; one that is to be fixed is given as
    numbers.
    """

    initial_joints_rad: InitialJoints = READY
    """Initial joint positions of the arm, or the name of one of its postures."""
    tool_in_hand: RandomPose = TOOL_IN_HAND
    """X_EG, pose of the tool's grasp frame in the end effector; the identity is a perfect grasp."""
    object_pose: RandomPose = OBJECT_POSE
    """X_WO, pose of the object's model frame in the world; the table top is at z = 0."""
    tool_mass_scale: Distribution = MASS_SCALE
    """Factor of the tool's mass and inertia."""
    object_mass_scale: Distribution = MASS_SCALE
    """Factor of the object's mass and inertia."""
    tool_friction_scale: Distribution = FRICTION_SCALE
    """Factor of the tool's coefficient of friction."""
    object_friction_scale: Distribution = FRICTION_SCALE
    """Factor of the object's coefficient of friction."""
    joint_resistance: dict[str, Distribution] = {}
    """Coulomb resistance of the object's named joints, N or N m; others keep the model's."""
    place: Annotated[RandomPlace | None, STORED_IF_SET] = None
    """A marked place on the table, to which the object is to be brought; none by default. Policies
    observe it."""
    cameras: dict[str, CameraPose] = EXTRINSICS
    """Extrinsics X_FC of the task's cameras, in the frame F (world or end effector) to which each
    is fixed; x points right in the image, y down, z into it. "mount": where the robot's hand has
    a mount for a camera."""
    tool_tint: DistributionVector3 = TINT
    """Factors of the tool's colours."""
    object_tint: DistributionVector3 = TINT
    """Factors of the object's colours."""
    table_tint: DistributionVector3 = TINT
    """Factors of the table's colours."""
    table_texture: NameDistribution = TABLE_TEXTURES
    """Names from `fleet_tools.config.file_access.texture_names()`."""

    @pydantic.field_validator("tool_in_hand", "object_pose", mode="before")
    @classmethod
    def _completed(cls, given: Any, info: pydantic.ValidationInfo) -> Any:
        """Lets each half of a pose that is left out have its default."""
        assert info.field_name is not None
        default = cls.model_fields[info.field_name].default
        return {**dict(default), **given} if isinstance(given, Mapping) else given

    @property
    def leaves_to_robot(self) -> bool:
        """Whether something is what the robot's file says."""
        return isinstance(self.initial_joints_rad, str) or MOUNT in self.cameras.values()

    _in_range = pydantic.field_validator(*(name for name in RANGES if name not in DISTURBANCES))(
        require_range
    )

    @pydantic.field_validator("table_texture")
    @classmethod
    def _textures_exist(cls, drawn: NameDistribution) -> NameDistribution:
        for name in (drawn,) if isinstance(drawn, str) else drawn.choice:
            texture_file(name)
        return drawn
