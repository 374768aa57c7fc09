"""An arm as a value, for simulation, controller and planner.

`task_configs/robots/` holds the package's own; another one is given by the path of its YAML file.
"""

import os
from pathlib import Path
from typing import Annotated, Self

import pydantic

from fleet_tools.config.distributions import Distribution
from fleet_tools.config.file_access import task_configs_root, yaml_names, yaml_path
from fleet_tools.config.geometry import Pose
from fleet_tools.config.randomization import MOUNT, READY, RandomPose
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import MisfitError, Number, Positive, Value, load_yaml
from fleet_tools.errors import ConfigError, UnknownNameError, require_name

DEFAULT_ROBOT = "panda"
"""Default robot of environments."""

LIGHT = "light"
"""Name of the visual meshes of an arm's `model`."""

Interval = tuple[Number, Number]


def _ordered(given: Interval) -> Interval:
    if not given[0] < given[1]:
        raise ValueError("expected the lower bound first")
    return given


class JointLimit(Value):
    """Limits of a joint that replace the model file's."""

    position_rad: Annotated[Interval, pydantic.AfterValidator(_ordered)] | None = None
    """Lowest and highest position."""
    speed_rad_s: Positive | None = None
    """Highest speed."""
    torque_nm: Positive | None = None
    """Largest torque."""


class ControllerGains(Value):
    """Operational-space control gains: natural frequencies of critically damped errors, rad/s."""

    translation_rad_s: Positive = 30.0
    """For the position of the end effector."""
    rotation_rad_s: Positive = 40.0
    """For the orientation of the end effector."""
    posture_rad_s: Positive = 5.0
    """For the posture of the arm, in the null space of the end effector's motion."""


class Arm(Value):
    """The content of a robot's file.

    Joints are revolute, in a row from the base to the hand, each with a motor. The hand holds the
    tool by a weld; fingers are fixed links.
    """

    name: str
    """Name of the arm; the package's own are named like their files."""
    description: str
    """A short description."""
    model: str
    """URDF or SDFormat file of arm and hand, relative to this file."""
    visuals: dict[str, str] = {}
    """Other model files by name, which differ in their visual meshes alone."""
    base_link: str
    """Link that is fixed to the world."""
    base_pose: Pose = Pose()
    """X_WB, pose of this link in the world; the table's top is at z = 0."""
    end_effector: str
    """Frame E, in which the hand holds tools: between the finger tips, z away from the palm, y
    along the closing of the fingers."""
    joints: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """Names of the joints, from the base to the hand."""
    limits: dict[str, JointLimit] = {}
    """Limits of joints by name, where the model file does not say."""
    planned_rad: dict[str, Annotated[Interval, pydantic.AfterValidator(_ordered)]] = {}
    """Ranges of joint positions by name, to which the expert keeps within the limits."""
    postures: dict[str, tuple[Distribution, ...]]
    """Initial joint positions by name, rad: "ready", and others that task files ask for."""
    camera_mount: RandomPose
    """X_EC, pose of a camera on the hand; x points right in the image, y down, z into it."""
    gains: ControllerGains = ControllerGains()
    """Gains of the operational-space controller."""

    _file: Path = pydantic.PrivateAttr(Path())

    def __hash__(self) -> int:
        """Returns a hash, by which caches find it."""
        return hash((self.name, self._file, self.model))

    @property
    def num_joints(self) -> int:
        """Number of joints."""
        return len(self.joints)

    @property
    def file(self) -> Path:
        """The file that says this."""
        return self._file

    @property
    def is_own(self) -> bool:
        """Whether it is a user's own, and not one of the package."""
        return self._file.resolve().parent != _robots().resolve()

    def model_file(self, visuals: str = LIGHT) -> Path:
        """Returns the model file with certain visual meshes.

        Raises:
            UnknownNameError: There is none.
        """
        require_name("robot_visuals", visuals, (LIGHT, *self.visuals))
        model = self.model if visuals == LIGHT else self.visuals[visuals]
        return Path(os.path.normpath(self._file.parent / model))

    def stamp(self) -> int:
        """Returns when the model file was written, by which caches notice that it was edited."""
        return self.model_file().stat().st_mtime_ns

    def fill(self, task: TaskConfig) -> TaskConfig:
        """Returns a task with this arm's numbers where its file leaves them to the robot.

        Raises:
            UnknownNameError: The arm has no posture of the name that the task asks for.
            ConfigError: The task gives the positions of another number of joints.
        """
        drawn = task.randomization
        joints = drawn.initial_joints_rad
        if isinstance(joints, str):
            what = f"posture of the robot {self.name!r}"
            require_name(what, joints, self.postures, "Or give the positions of its joints.")
            joints = self.postures[joints]
        self.require_joints(len(joints), f"The task {task.name!r}")
        cameras = {
            name: self.camera_mount if pose == MOUNT else pose
            for name, pose in drawn.cameras.items()
        }
        filled = {"initial_joints_rad": joints, "cameras": cameras}
        return task.model_copy(update={"randomization": drawn.model_copy(update=filled)})

    def require_joints(self, count: int, source: str) -> None:
        """Checks a number of joint positions.

        Args:
            count: The number.
            source: What gives them, such as "The scene".

        Raises:
            ConfigError: The arm has another number of joints.
        """
        if count != self.num_joints:
            raise ConfigError(
                f"{source} gives the positions of {count} joints (initial_joints_rad); the robot "
                f"{self.name!r} has {self.num_joints}."
            )

    @pydantic.field_validator("joints")
    @classmethod
    def _distinct(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(given)) < len(given):
            raise ValueError("a joint is named twice")
        return given

    @pydantic.model_validator(mode="after")
    def _joints_exist(self) -> Self:
        for field in ("limits", "planned_rad"):
            for name in getattr(self, field):
                if name not in self.joints:
                    error = UnknownNameError("joint of the arm", name, self.joints)
                    raise MisfitError(f"{field}.{name}", str(error))
        return self

    @pydantic.model_validator(mode="after")
    def _postures_fit(self) -> Self:
        if READY not in self.postures:
            raise MisfitError("postures", f"{READY!r} is missing")
        for name, posture in self.postures.items():
            if len(posture) != self.num_joints:
                raise MisfitError(
                    f"postures.{name}",
                    f"expected {self.num_joints} positions, one for each joint; given: "
                    f"{len(posture)}",
                )
        return self


def robot_names() -> list[str]:
    """Returns the names of the robots that come with the package."""
    return yaml_names(_robots())


def robot_path(name_or_path: str) -> Path:
    """Returns the file of a robot, given its name in the package or its path.

    Raises:
        UnknownNameError, ConfigError: See `yaml_path`.
    """
    return yaml_path("robot", name_or_path, _robots())


def load_robot(name_or_path: str = DEFAULT_ROBOT) -> Arm:
    """Reads a robot by name or by path.

    Raises:
        UnknownNameError: There is no such robot.
        ConfigError: The file does not fit, the message lists every place; or its models are
            missing.
    """
    path = robot_path(name_or_path)
    arm = load_yaml(Arm, path)
    arm._file = path
    for visuals in (LIGHT, *arm.visuals):
        if not (model := arm.model_file(visuals)).is_file():
            raise ConfigError(f"{path}: the model file {model} does not exist.")
    return arm


def _robots() -> Path:
    return task_configs_root() / "robots"
