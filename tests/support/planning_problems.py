"""Planning problems of real scenes, from the keypoints of models; and strategies for poses."""

from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant

from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.experts.kinematics import Kinematics, arm_kinematics
from fleet_tools.experts.problem import PlanningProblem
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import Kind, find_model
from fleet_tools.sim.scene import sample_scene

unit = st.floats(-1, 1)
vectors = st.tuples(unit, unit, unit).map(np.array)
directions = vectors.filter(lambda v: np.linalg.norm(v) > 0.1).map(lambda v: v / np.linalg.norm(v))
turns = st.builds(
    lambda angle, axis: RotationMatrix(AngleAxis(angle, axis)), st.floats(0, np.pi), directions
)
poses = st.builds(RigidTransform, turns, vectors)


def planning_problem(seed: int = 0, task: str = "hammer", **changes: Any) -> PlanningProblem:
    """Returns the problem of a scene, with some of its fields replaced."""
    config = _load_task(task)
    scene = sample_scene(config, seed)
    X_EG = scene.tool_in_hand.to_transform()
    X_GT = find_model("tool", config.tool_family, scene.tool).labels.grasp.to_transform().inverse()
    X_WO = scene.object_pose.to_transform()
    values = {
        "expert": config.expert,
        "action": config.action,
        "robot": ROBOT,
        "q0": np.array(scene.initial_joints_rad),
        "p_E_tool": _moved(X_EG @ X_GT, model_points("tool", config, scene.tool)),
        "p_W_object": _moved(X_WO, model_points("object", config, scene.object)),
        "X_WO": X_WO,
    }
    return PlanningProblem(**(values | changes))


def model_points(kind: Kind, config: TaskConfig, name: str) -> dict[str, np.ndarray]:
    """Returns a model's keypoints in its own frame, with its joints at their defaults."""
    return _model_points(kind, getattr(config, f"{kind}_family"), name)


_load_task = cache(load_task)

ROBOT = load_robot()


def arm() -> Kinematics:
    """Returns the kinematics of the problems' arm."""
    return arm_kinematics(ROBOT)


@cache
def _model_points(kind: Kind, family: str, name: str) -> dict[str, np.ndarray]:
    model = find_model(kind, family, name)
    plant = MultibodyPlant(time_step=0.0)
    (instance,) = Parser(plant).AddModels(model.file)
    plant.Finalize()
    context = plant.CreateDefaultContext()
    X_WM = plant.GetFrameByName("__model__", instance).CalcPoseInWorld(context)
    points = {}
    for keypoint, label in model.labels.keypoints.items():
        link = plant.GetFrameByName(label.link, instance)
        points[keypoint] = X_WM.inverse() @ link.CalcPoseInWorld(context) @ label.position
    return points


def _moved(X: RigidTransform, points: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: X @ p for name, p in points.items()}
