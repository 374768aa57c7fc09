"""Rules for every tool and object, and the measurements that they judge.

What a family needs beside it is in `assets.families`. Joints are at their defaults. Bounds on
shapes are where the expert begins to fail; `assets check --scenes` tries it with a model.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial

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
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import RigidBody
from pydrake.systems.framework import Context

from fleet_tools.assets.families import HandAlignment, known_family
from fleet_tools.assets.model_geometry import (
    ConvexPiece,
    LinkGeometry,
    ModelGeometry,
    signed_distance,
)
from fleet_tools.assets.rules import Rule, Values, angle, of_links, perpendicular, thickness
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm_model import PARSER_ERRORS
from fleet_tools.sim.add_models import add_model, model_frame
from fleet_tools.sim.catalog import Kind, Model
from fleet_tools.sim.contact_shapes import complete_contact, sides_with_margin, welded_groups
from fleet_tools.sim.resting_faces import LEAST_LEAN
from fleet_tools.studio.importing.collision_geometry import empty_plant

NEAREST_TO_WORK = 0.010
"""Least distance of the hand from the lines between working keypoints, m."""


def measure_model(model: Model) -> ModelGeometry:
    """Measures a model.

    Raises:
        ConfigError: Drake cannot read the model, it lacks masses, collision shapes or the link of
            a keypoint, or a shape has no volume.
    """
    plant, scene_graph, _ = empty_plant()
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
        raise ConfigError(f"{model.file} has no <collision>, so nothing can touch it.")
    with warnings.catch_warnings(action="ignore"):  # which a world gives
        complete_contact(plant, scene_graph, instance, model.file)
    groups = welded_groups(plant, instance)
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
        family=model.labels.family,
        sides=tuple(s for group in groups for s in sides_with_margin(scene_graph, group)[:1]),
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


def _vertices_of(link: LinkGeometry) -> np.ndarray:
    return np.concatenate([piece.vertices for piece in link.pieces])


def density(link: LinkGeometry) -> float:
    """Returns the mass by the volume of the collision pieces, kg/m^3.

    Overlaps of pieces count twice, up to the volume of the convex hull of all.
    """
    hull = ConvexPiece(_vertices_of(link))
    return link.mass / min(hull.volume, sum(piece.volume for piece in link.pieces))


def distance_of_mass(link: LinkGeometry) -> float:
    """Returns how far the centre of mass is outside of the bounding box, m; 0 inside."""
    vertices = _vertices_of(link)
    nearest = np.clip(link.p_MCom, vertices.min(axis=0), vertices.max(axis=0))
    return float(np.linalg.norm(link.p_MCom - nearest))


def gyration(link: LinkGeometry) -> float:
    """Returns the radius of gyration by half the diagonal of the bounding box; at most 1."""
    diagonal = float(np.linalg.norm(np.ptp(_vertices_of(link), axis=0)))
    return math.sqrt(link.moments[-1] / link.mass) / (diagonal / 2)


def keypoint_distances(geometry: ModelGeometry) -> Values:
    """Returns the distance of each keypoint outside of the model, m; 0 inside."""
    return {name: max(signed_distance(geometry.pieces, p), 0.0) for name, p in geometry.p_M.items()}


def grasp_width(geometry: ModelGeometry) -> Values:
    """Returns the width of the tool between the fingers, m, along y of the grasp frame G."""
    R_MG = geometry.X_MG.rotation().matrix()
    return {"": thickness(geometry, geometry.X_MG.translation(), R_MG[:, 1], reach=0.03)}


def distance_of_hand(geometry: ModelGeometry) -> Values:
    """Returns the distance of the hand's frame outside of the tool, m; 0 inside."""
    distance = signed_distance(geometry.pieces, geometry.X_MG.translation())
    return {"the grasp": max(distance, 0.0)}


def hand_tilt(geometry: ModelGeometry, alignment: HandAlignment) -> Values:
    """Returns the angle of the hand's z from the direction of use, rad."""
    return {_z_words(alignment): angle(_z(geometry), geometry.axis(*alignment.down))}


def hand_lean(geometry: ModelGeometry, alignment: HandAlignment) -> Values:
    """Returns the angle of the hand's z out of the plane of the direction of use and of x, rad."""
    down, ahead = geometry.axis(*alignment.down), _ahead(geometry, alignment)
    if ahead is None:
        return {}
    side = float(_z(geometry) @ np.cross(down, ahead))
    return {_z_words(alignment): math.asin(min(1.0, abs(side)))}


def hand_turn(geometry: ModelGeometry, alignment: HandAlignment) -> Values:
    """Returns the angle of the hand's x from `ahead`, about the direction of use, rad."""
    down, ahead = geometry.axis(*alignment.down), _ahead(geometry, alignment)
    x = geometry.X_MG.rotation().matrix()[:, 0]
    if ahead is None or abs(x @ down) > 0.99:  # the tilt is refused
        return {}
    return {f"the grasp (x from {alignment.ahead})": angle(perpendicular(x, down), ahead)}


def _z(geometry: ModelGeometry) -> np.ndarray:
    """Returns the axis of the hand that points away from the palm, (3,)."""
    return geometry.X_MG.rotation().matrix()[:, 2]


def _z_words(alignment: HandAlignment) -> str:
    return f"the grasp (z from {' -> '.join(alignment.down)})"


def _ahead(geometry: ModelGeometry, alignment: HandAlignment) -> np.ndarray | None:
    """Returns the unit vector from the hand to `ahead`, (3,), across the direction of use."""
    down = geometry.axis(*alignment.down)
    ahead = geometry.p_M[alignment.ahead] - geometry.X_MG.translation()
    ahead -= (ahead @ down) * down
    length = np.linalg.norm(ahead)
    return ahead / length if length > NEAREST_TO_WORK else None  # nearer it is no direction


def distance_of_working_end(geometry: ModelGeometry, alignment: HandAlignment) -> Values:
    """Returns the distance of the hand's frame from the lines between working keypoints, m."""
    points = [geometry.p_M[name] for name in alignment.working_end]
    hand = geometry.X_MG.translation()
    distances = []
    for one, other in itertools.combinations(points, 2):
        along = other - one
        t = np.clip((hand - one) @ along / max(along @ along, 1e-18), 0, 1)
        distances.append(float(np.linalg.norm(hand - one - t * along)))
    return {f"the grasp (to {', '.join(alignment.working_end)})": min(distances)}


def total_mass(geometry: ModelGeometry) -> Values:
    """Returns the mass of all links with collision geometry, kg."""
    return {"": sum(link.mass for link in geometry.links.values())}


def height_of_base(geometry: ModelGeometry) -> Values:
    """Returns z of the lowest point in the model frame, m."""
    return {"": min(float(piece.vertices[:, 2].min()) for piece in geometry.pieces)}


def least_lean(geometry: ModelGeometry) -> Values:
    """Returns the least angle of the sides of welded links from upright on any face, rad."""
    return {str(side): side.lean for side in geometry.sides}


RULES = (
    Rule(
        "density",
        of_links(density),
        "g/cm^3",
        low=50.0,
        high=20_000.0,
        reason="stiff foam has 0.05 g/cm^3, tungsten 19.3",
        remedy="Mend the mass (kg) or the size (m): grams, or millimetres that are taken for "
        "metres, are wrong by a thousand.",
    ),
    Rule(
        "centre of mass outside of the bounding box",
        of_links(distance_of_mass),
        "mm",
        high=1e-3,
        reason="the centre of mass lies within the convex hull of a body",
        remedy="Give <inertial> its pose in the link's frame, m.",
    ),
    Rule(
        "radius of gyration by half the diagonal",
        of_links(gyration),
        "",
        low=0.05,
        high=1.0,
        reason="no body within its bounding box has more than 1; a solid one has about 0.5",
        remedy="Give the inertia in kg m^2 about the centre of mass.",
    ),
    Rule(
        "distance outside of the model",
        keypoint_distances,
        "mm",
        high=0.05,
        reason="a point that tasks refer to lies on the model, or in a gap of it",
        remedy="Give the position of the keypoint in m, in the frame of the link it names.",
    ),
)

TOOL_RULES = (
    Rule(
        "width in the hand",
        grasp_width,
        "mm",
        low=2e-3,
        high=0.08,
        reason="the fingers open by 80 mm, and close along y of the grasp frame",
        remedy="Give `grasp` in keypoints.yaml: the pose in the model frame at which the hand "
        "holds the handle, y across it, z away from the palm.",
    ),
    Rule(
        "distance outside of the tool",
        distance_of_hand,
        "mm",
        high=0.010,
        reason="the fingers close on what is between them, within 10 mm of the grasp frame",
        remedy="Move `grasp` in keypoints.yaml onto the middle of the handle (`assets import "
        "--grasp`, or the hand of `fleet-tools label FOLDER`).",
    ),
    Rule(
        "mass",
        total_mass,
        "kg",
        high=2.5,
        reason="the arm carries 3 kg, and scenes scale masses by up to 1.2",
        remedy="Make it lighter.",
    ),
)

OBJECT_RULES = (
    Rule(
        "height of the lowest point",
        height_of_base,
        "mm",
        low=-5e-4,
        high=1e-3,
        reason="scenes place the model frame on the table",
        remedy="Move the model so that it stands on z = 0.",
    ),
)


FREE_OBJECT_RULES = (
    Rule(
        "angle from upright",
        least_lean,
        "deg",
        low=LEAST_LEAN,
        reason="where an object lies flat between upright sides, Drake's contact solver stops too "
        "early, and all forces and motions are wrong",
        remedy="Let the sides lean by some micrometres: `python -m fleet_tools.assets mend FOLDER` "
        "does it, and `assets import MESH` makes such pieces of a mesh.",
    ),
)


def hand_rules(alignment: HandAlignment) -> tuple[Rule, ...]:
    """Returns the rules that compare the grasp of a tool with the direction of its use."""
    start, end = alignment.down
    mend = (
        f"Turn `grasp` in keypoints.yaml so that z points along {start} -> {end}, and x to "
        f"{alignment.ahead}"
    )
    how = " (`assets import --grasp`, or the hand of `fleet-tools label FOLDER`)."

    def turned(name: str, measure: Callable[..., Values], most_deg: float, reason: str) -> Rule:
        measured, high = partial(measure, alignment=alignment), math.radians(most_deg)
        return Rule(name, measured, "deg", high=high, reason=reason, remedy=mend + how)

    rules = [
        turned(
            "tilt against the direction of use",
            hand_tilt,
            alignment.tilt_deg,
            "z points away from the palm, and the tool is used in this direction; with a hand on "
            "the wrong side the expert failed in all scenes",
        ),
        turned(
            "sideways tilt",
            hand_lean,
            alignment.lean_deg,
            "with the palm at a side of the tool the expert failed in all scenes",
        ),
        turned(
            "turn away from the working end",
            hand_turn,
            alignment.turn_deg,
            "x points along the handle to the working end; turned back, the arm cannot reach most "
            "scenes",
        ),
        Rule(
            "distance from the working end",
            partial(distance_of_working_end, alignment=alignment),
            "mm",
            low=NEAREST_TO_WORK,
            reason="a hand there is in the way of the work, and no handle is there",
            remedy="Move `grasp` in keypoints.yaml to the middle of the handle" + how,
        ),
    ]
    limits = (True, alignment.lean_deg < 90, alignment.turn_deg < 180, alignment.working_end)
    return tuple(rule for rule, limit in zip(rules, limits, strict=True) if limit)


def grasp_rules(family: str) -> tuple[Rule, ...]:
    """Returns the rules of a tool that measure its grasp."""
    found = known_family(family)
    alignment = found.alignment if found is not None else None
    return TOOL_RULES[:2] + (() if alignment is None else hand_rules(alignment))


def find_rules(kind: Kind, family: str) -> tuple[Rule, ...]:
    """Returns the rules of a family: the general ones, and its own if it is of the package.

    Objects are free, unless tasks of the package fix objects of their family to the table.
    """
    tasks = map(load_task, task_names())
    fixed = any(t.object_family == family and t.object_mount == "fixed" for t in tasks)
    of_objects = OBJECT_RULES if fixed else OBJECT_RULES + FREE_OBJECT_RULES
    of_tools = grasp_rules(family) + TOOL_RULES[2:]
    general = RULES + (of_tools if kind == "tool" else of_objects)
    found = known_family(family)
    return general + (found.rules if found is not None and found.kind == kind else ())
