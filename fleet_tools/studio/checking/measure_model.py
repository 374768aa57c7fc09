"""What is measured of a model: its collision pieces, masses and labels, read by Drake.

Joints are at their defaults.
"""

from collections.abc import Iterator

import numpy as np
import trimesh
from pydrake.geometry import (
    Box,
    Capsule,
    Cylinder,
    Ellipsoid,
    GeometryId,
    SceneGraphInspector,
    Sphere,
)
from pydrake.math import RigidTransform
from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlant, MultibodyPlantConfig
from pydrake.multibody.tree import RigidBody
from pydrake.systems.framework import Context, DiagramBuilder

from fleet_tools.assets.model_geometry import ConvexPiece, LinkGeometry, ModelGeometry
from fleet_tools.config.control import TIME_STEP
from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm_model import PARSER_ERRORS
from fleet_tools.sim.add_models import add_model, model_frame
from fleet_tools.sim.catalog import Model


def measure_model(model: Model) -> ModelGeometry:
    """Reads what is measured of a model.

    Raises:
        ConfigError: Drake cannot read the model, it lacks masses, collision shapes or the link of
            a keypoint, or a shape has no volume.
    """
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(time_step=TIME_STEP), builder)
    instance = add_model(plant, scene_graph, model, model.labels.kind)
    try:
        frame = model_frame(plant, instance)
        plant.Finalize()
        inspector = scene_graph.model_inspector()
        bodies = {
            body.name(): body
            for body in map(plant.get_body, plant.GetBodyIndices(instance))
            if plant.GetCollisionGeometriesForBody(body)
        }
        context = plant.CreateDefaultContext()
        X_MW = frame.CalcPoseInWorld(context).inverse()
        found = {
            name: _link(plant, inspector, body, context, X_MW) for name, body in bodies.items()
        }
    except PARSER_ERRORS as error:
        raise ConfigError(f"Drake cannot read {model.file}: {error}") from error
    links = {name: link for name, link in found.items() if link.pieces}
    if not links:
        raise ConfigError(f"{model.file} has no <collision>, so that nothing could touch it.")
    labels = model.labels.keypoints
    poses = {
        name: X_MW @ plant.GetBodyByName(keypoint.link, instance).EvalPoseInWorld(context)
        for name, keypoint in labels.items()
    }
    return ModelGeometry(
        kind=model.labels.kind,
        links=links,
        keypoint_links={name: keypoint.link for name, keypoint in labels.items()},
        p_M={name: poses[name] @ np.array(labels[name].position) for name in labels},
        X_MG=model.labels.grasp.to_transform(),
    )


def _link(
    plant: MultibodyPlant,
    inspector: SceneGraphInspector,
    body: RigidBody,
    context: Context,
    X_MW: RigidTransform,
) -> LinkGeometry:
    X_MB = X_MW @ body.EvalPoseInWorld(context)
    spatial = body.CalcSpatialInertiaInBodyFrame(context)
    central = spatial.Shift(spatial.get_com()).CalcRotationalInertia()
    pieces = []
    for geometry in plant.GetCollisionGeometriesForBody(body):
        X_MS = X_MB @ inspector.GetPoseInFrame(geometry)
        pieces += [ConvexPiece((X_MS @ points.T).T) for points in _vertices(inspector, geometry)]
    return LinkGeometry(
        pieces=tuple(pieces),
        mass=spatial.get_mass(),
        p_MCom=X_MB @ spatial.get_com(),
        moments=np.sort(central.CalcPrincipalMomentsOfInertia()),
    )


def _vertices(inspector: SceneGraphInspector, geometry: GeometryId) -> Iterator[np.ndarray]:
    """Yields the vertices of a shape's convex hull, (n, 3), in its own frame; none of a plane."""
    shape = inspector.GetShape(geometry)
    hull = inspector.GetConvexHull(geometry)
    if hull is not None:
        yield np.array([hull.vertex(k) for k in range(hull.num_vertices())])
        return
    match shape:
        case Box():
            mesh = trimesh.creation.box(shape.size())
        case Sphere():
            mesh = trimesh.creation.icosphere(3, shape.radius())
        case Ellipsoid():
            mesh = trimesh.creation.icosphere(3).apply_scale([shape.a(), shape.b(), shape.c()])
        case Cylinder():
            mesh = trimesh.creation.cylinder(shape.radius(), shape.length(), sections=64)
        case Capsule():
            mesh = trimesh.creation.capsule(shape.length(), shape.radius())
            mesh.apply_translation(-mesh.bounds.mean(axis=0))
        case _:
            return
    yield np.asarray(mesh.vertices)
