"""The visible surface of a model folder, read by Drake."""

from dataclasses import dataclass

import numpy as np
from pydrake.geometry import Role
from pydrake.math import RigidTransform
from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
from pydrake.systems.framework import DiagramBuilder

from fleet_tools.assets.solids import Solid
from fleet_tools.config.control import TIME_STEP
from fleet_tools.errors import ConfigError
from fleet_tools.perception.visible_links import link_triangles
from fleet_tools.sim.add_models import add_model
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.model_checks import model_frame
from fleet_tools.studio.importing.repair import cleaned


@dataclass(frozen=True, eq=False)
class ModelSurface:
    """A model as it looks, with joints at their defaults.

    Attributes:
        surface: All visible links as one surface, in M, m.
        links: Poses X_ML of its links by name, (4, 4).
        keypoints: Positions of its keypoints in M, (3,) each, m.
    """

    surface: Solid
    links: dict[str, np.ndarray]
    keypoints: dict[str, np.ndarray]


def read_surface(model: Model) -> ModelSurface:
    """Reads what is visible of a model.

    Raises:
        ConfigError: Drake cannot read it, nothing of it is visible, or it lacks the link of a
            keypoint.
    """
    plant, scene_graph = AddMultibodyPlant(
        MultibodyPlantConfig(time_step=TIME_STEP), DiagramBuilder()
    )
    instance = add_model(plant, scene_graph, model, model.labels.kind)
    frame = model_frame(plant, instance)
    plant.Finalize()
    context = plant.CreateDefaultContext()
    X_MW = frame.CalcPoseInWorld(context).inverse()
    inspector = scene_graph.model_inspector()
    corners, links = [], {}
    for body in map(plant.get_body, plant.GetBodyIndices(instance)):
        X_ML: RigidTransform = X_MW @ body.EvalPoseInWorld(context)
        links[body.name()] = X_ML.GetAsMatrix4()
        body_frame = plant.GetBodyFrameIdOrThrow(body.index())
        if inspector.NumGeometriesForFrameWithRole(body_frame, Role.kPerception):
            triangles = link_triangles(scene_graph, body_frame).astype(float)
            corners.append(X_ML.multiply(triangles.reshape(-1, 3).T).T)
    if not corners:
        raise ConfigError(f"{model.file} has no <visual>, so that there is nothing to click on.")
    vertices = np.concatenate(corners)
    surface, _ = cleaned(vertices, np.arange(len(vertices)).reshape(-1, 3))
    keypoints = {}
    for name, keypoint in model.labels.keypoints.items():
        X_ML = RigidTransform(links[keypoint.link])
        keypoints[name] = X_ML @ np.array(keypoint.position)
    return ModelSurface(surface, links, keypoints)
