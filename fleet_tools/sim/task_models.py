"""The models and scenes of a task: found, and checked before anything is built."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm import Arm
from fleet_tools.robot.arm_model import require_positions
from fleet_tools.sim.catalog import Kind, Model, find_model, model_names, name_of_own
from fleet_tools.sim.scene import Scene


def find_task_model(task: TaskConfig, kind: Kind, name: str) -> Model:
    """Finds a tool or object of a task, by its name in the family or by path.

    Raises:
        ConfigError, UnknownNameError: There is no such model, or it lacks a keypoint of the task.
    """
    family = task.tool_family if kind == "tool" else task.object_family
    model = find_model(kind, family, name, task.assets, task.given)
    for keypoint in task.keypoints.tool if kind == "tool" else task.keypoints.object:
        model.keypoint(keypoint)
    return model


def admit_model(task: TaskConfig, kind: Kind, name: str) -> tuple[TaskConfig, str]:
    """Admits a model, which may be given by path, to the scenes of a task.

    Args:
        task: The task.
        kind: Kind of the model.
        name: Its name in the family, or its path.

    Returns:
        The task whose scenes may have the model, and its name there.

    Raises:
        ConfigError, UnknownNameError: See `find_task_model`.
    """
    model = find_task_model(task, kind, name)
    family = task.tool_family if kind == "tool" else task.object_family
    if (kind, name) in task.given.folders or name in model_names(kind, family, task.assets):
        return task, name
    own = name_of_own(model)
    folders = {**task.given.folders, (kind, own): str(model.file.parent)}
    return task.with_given(replace(task.given, folders=folders)), own


def check_scene(task: TaskConfig, robot: Arm, given: Scene | Mapping[str, Any]) -> Scene:
    """Returns a scene of a task.

    Args:
        task: The task.
        robot: The robot.
        given: The scene, or its JSON as a dict.

    Raises:
        ConfigError, UnknownNameError: It is not a scene of the task and the robot, or its models do
            not exist.
    """
    # A scene may be an altered copy, which pydantic does not check.
    data = given.model_dump(warnings=False) if isinstance(given, Scene) else given
    scene = parse(Scene, data, "The scene")
    if scene.task != task.name:
        raise ConfigError(
            f"The scene belongs to the task {scene.task!r}; this environment's task is "
            f"{task.name!r}."
        )
    require_positions(robot, scene.initial_joints_rad, "The scene")
    resistances = list(task.randomization.joint_resistance)
    if set(scene.joint_resistance) != set(resistances):
        raise ConfigError(
            f"The scene gives the resistance of the joints {list(scene.joint_resistance)}; "
            f"the task {task.name!r} has {resistances}."
        )
    if scene.cameras.keys() != task.cameras.keys():
        raise ConfigError(
            f"The scene places the cameras {list(scene.cameras)}; the task {task.name!r} has "
            f"{list(task.cameras)}."
        )
    find_task_model(task, "tool", scene.tool)
    find_task_model(task, "object", scene.object)
    return scene
