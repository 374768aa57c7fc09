"""What a task file may say.

A task is data: families of tools and objects, how scenes vary, how the robot is controlled, what
the expert must achieve at which keypoints, and what counts as success. Its building blocks are in
`fleet_tools.config.randomization`, `fleet_tools.config.expert` and `fleet_tools.config.predicates`; they are
all that environment, simulation and expert know, and a new task composes them in YAML.

Keypoints are named in the `keypoints.yaml` of each tool and object.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from fleet_tools.config.cameras import Camera
from fleet_tools.config.expert import Expert
from fleet_tools.config.predicates import Predicate
from fleet_tools.config.randomization import Randomization
from fleet_tools.config.values import Axis, Count, Positive, Value, load_yaml
from fleet_tools.errors import UnknownNameError
from fleet_tools.utils.resources import task_configs_root


class ActionBounds(Value):
    """The motion of the end effector in one control step when an action's entry is 1."""

    translation_m: Positive
    rotation_deg: Positive


class ControllerGains(Value):
    """Operational-space control: natural frequencies of the critically damped errors, rad/s."""

    translation_rad_s: Positive
    rotation_rad_s: Positive
    posture_rad_s: Positive


class ObservedKeypoints(Value):
    """The keypoints that every tool and object of the task must have; policies observe them."""

    tool: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    object: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]


class Reach(Value):
    """What the dense reward adds to the progress towards success: nearness of two keypoints."""

    tool: str
    object: str
    length_m: Positive
    """The distance at which nearness is one half."""


class HeldOut(Value):
    """Models and pairs that the split `train` does not show; see `fleet_tools.sim.splits`."""

    tools: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    """Tool and object, each of which is seen in other pairs."""


class TaskConfig(Value):
    """Everything that makes a task the task it is; see `task_configs/` for instances."""

    name: str
    description: str
    tool_family: str
    object_family: str
    assets: str | None = None
    """A folder of further models, laid out as the package's own, relative to the task file."""
    held_out: HeldOut = HeldOut()
    object_mount: Literal["fixed", "free"]
    """Whether the object's first link is fixed to the table."""
    keypoints: ObservedKeypoints
    max_episode_steps: Count
    action: ActionBounds
    controller: ControllerGains
    cameras: dict[Annotated[str, pydantic.Field(pattern="^[a-z][a-z0-9_]*$")], Camera] = {}
    """By name; their extrinsics are drawn, see `Randomization.cameras`."""
    randomization: Randomization
    success: Annotated[tuple[Predicate, ...], pydantic.Field(min_length=1)]
    """All of these hold."""
    success_steps: Count = 1
    """For so many control steps on end."""
    reach: Reach
    expert: Expert

    @pydantic.model_validator(mode="after")
    def _cameras_stand_somewhere(self):
        drawn = self.randomization.cameras
        if self.cameras.keys() != drawn.keys():
            raise ValueError(
                f"cameras and randomization.cameras speak of the same cameras; the first of "
                f"{list(self.cameras)}, the second of {list(drawn)}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _keypoints_exist(self):
        for user in (*self.expert.actuation.constraints, *self.success, self.reach):
            for kind in ("tool", "object", "objects"):
                for name in _names(getattr(user, kind, None)):
                    part = kind.removesuffix("s")
                    known = getattr(self.keypoints, part)
                    if name not in known:
                        raise UnknownNameError(f"{part} among the task's keypoints", name, known)
        return self


def _names(keypoints: str | Axis | None) -> tuple[str, ...]:
    return (keypoints,) if isinstance(keypoints, str) else keypoints or ()


def task_names() -> list[str]:
    """The tasks that come with the package."""
    return sorted(path.stem for path in task_configs_root().glob("*.yaml"))


def task_path(name_or_path: str) -> Path:
    """The file of a task that comes with the package, or of a user's own.

    Raises:
        UnknownNameError: There is neither such a task nor such a file.
    """
    if name_or_path in task_names():
        return task_configs_root() / f"{name_or_path}.yaml"
    if isinstance(name_or_path, str):
        path = Path(os.path.expanduser(name_or_path))
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return path.resolve()
    raise UnknownNameError(
        "task", name_or_path, task_names(), "A task of your own is given by the path of its YAML."
    )


def load_task(name_or_path: str) -> TaskConfig:
    """Reads a task by name or by path.

    Raises:
        UnknownNameError: There is no such task.
        ConfigError: The file says something that it may not say.
    """
    path = task_path(name_or_path)
    task = load_yaml(TaskConfig, path)
    if task.assets is not None:
        task = task.model_copy(update={"assets": str((path.parent / task.assets).resolve())})
    return task
