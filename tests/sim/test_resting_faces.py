"""Upright sides are found where Drake's contact polygons let its solver fail, and only there."""

import itertools
import warnings

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.geometry import (
    AddCompliantHydroelasticProperties,
    AddContactMaterial,
    AddRigidHydroelasticProperties,
    Box,
    Convex,
    Cylinder,
    HalfSpace,
    ProximityProperties,
    Shape,
    VolumeMesh,
)
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.plant import AddMultibodyPlant, CoulombFriction, MultibodyPlantConfig
from pydrake.multibody.tree import SpatialInertia
from pydrake.systems.framework import DiagramBuilder
from support.sap_problem import polygons

from fleet_tools.assets.families import slab
from fleet_tools.assets.model_folder import write_model
from fleet_tools.assets.solids import box, leaning
from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.file_access import assets_root
from fleet_tools.sim.resting_faces import LEAST_LEAN, resting_sides
from fleet_tools.studio.checking.program import CheckOptions, make_report

HARMLESS_J = 1e6
"""Constant in the solver's cost, J, beside which its tolerance of 1e-15 still sees 1e-9 J."""

CORNERS = np.array([*itertools.product((-1.0, 1.0), repeat=3)])
SIZES = st.tuples(*[st.floats(0.01, 0.06)] * 3)


def tapered(size: np.ndarray, lean: float) -> np.ndarray:
    """Returns the corners of a box whose top is narrower, so that its sides lean inwards, rad."""
    corners = CORNERS * size
    corners[:, :2] -= np.sign(corners[:, :2]) * lean * (corners[:, 2:] + size[2])
    return corners


def largest_constant(shape: Shape, height: float) -> tuple[float, np.ndarray]:
    """Returns the largest constant of a polygon in the solver's cost, J, and the mesh's corners.

    The shape lies on a table, some um deep, turned by several angles.
    """
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(time_step=TIME_STEP), builder)
    body = plant.AddRigidBody("body", SpatialInertia.SolidSphereWithMass(0.1, 0.02))
    for of, what, soft in ((body, shape, True), (plant.world_body(), HalfSpace(), False)):
        properties = ProximityProperties()
        AddContactMaterial(200.0, None, CoulombFriction(0.5, 0.5), properties)
        if soft:
            AddCompliantHydroelasticProperties(0.02, 5e4, properties)
            properties.AddProperty("hydroelastic", "margin", 1e-4)
        else:
            AddRigidHydroelasticProperties(properties)
        plant.RegisterCollisionGeometry(of, RigidTransform(), what, of.name(), properties)
    plant.Finalize()
    diagram = builder.Build()
    root = diagram.CreateDefaultContext()
    context, largest = plant.GetMyMutableContextFromRoot(root), 0.0
    for angle in (0.1, 0.7, 1.9, 2.8):
        R_WB = RotationMatrix.MakeZRotation(angle)
        for depth in (1e-6, 1e-5, 5e-5):
            plant.SetFreeBodyPose(context, body, RigidTransform(R_WB, [0.1, 0.2, height - depth]))
            pressure, slope, area, _, _, d = polygons(plant, context)
            k, f = area * slope, area * pressure
            v = np.minimum(f / TIME_STEP / (k + 1e-20), 0.0)  # where the force is clamped
            largest = max(largest, float(np.abs(TIME_STEP * v * f * (1 / 2 - d * v / 6)).max()))
    (geometry,) = plant.GetCollisionGeometriesForBody(body)
    mesh = scene_graph.model_inspector().maybe_get_hydroelastic_mesh(geometry)
    assert isinstance(mesh, VolumeMesh)
    return largest, np.array(mesh.vertices())


BOX = np.array([0.03, 0.02, 0.01])


@pytest.mark.parametrize(
    ("shape", "fails"),
    [
        (Box(*2 * BOX), True),
        (Cylinder(0.03, 0.02), True),
        (Convex((CORNERS * BOX).T, "box"), True),
        (Convex(tapered(BOX, 2 * LEAST_LEAN).T, "tapered"), False),
        (Convex(tapered(BOX, 1e-3).T, "tapered"), False),
        (Convex(tapered(BOX, -1e-3).T, "wider"), False),
        (Convex(leaning(box(-BOX, BOX)).vertices.T, "imported"), False),
    ],
    ids=["Box", "Cylinder", "box", "barely tapered", "tapered", "wider at the top", "imported"],
)
def test_sides_are_upright_where_the_solver_fails(shape: Shape, fails: bool):
    constant, corners = largest_constant(shape, 0.01)
    (*_, lowest) = sorted(resting_sides({"it": corners}, np.zeros(3)), key=lambda s: -s.face[2])
    assert lowest.face[2] < -0.999999
    assert (constant > HARMLESS_J) == lowest.upright == fails, constant


@pytest.mark.parametrize("name", list(slab.CATALOGUE))
def test_no_slab_of_the_package_has_polygons_on_which_the_solver_fails(name: str):
    part = slab.build(slab.CATALOGUE[name], name).links[0].parts[0]
    (solid,) = part.collision
    constant, _ = largest_constant(Convex(solid.vertices.T, name), 0.0)
    assert constant < HARMLESS_J


@given(SIZES, st.floats(0, 3), st.floats(-1, 1))
def test_a_box_is_upright_on_every_face_in_any_pose(size, angle, z):
    axis = np.array([np.sqrt(1 - z * z), 0.0, z])
    R = RotationMatrix(np.eye(3)) if angle == 0 else RotationMatrix.MakeFromOneVector(axis, 2)
    turned = (CORNERS * size) @ (R.matrix() @ RotationMatrix.MakeZRotation(angle).matrix()).T
    sides = resting_sides({"box": turned}, np.zeros(3))
    assert len(sides) == 6 and all(side.upright for side in sides)


@given(SIZES)
def test_an_imported_box_is_upright_on_none(size):
    sides = resting_sides({"box": leaning(box(-np.array(size), size)).vertices}, np.zeros(3))
    assert len(sides) == 6 and not any(side.upright for side in sides)


@given(SIZES)
def test_imported_solids_hardly_move(size):
    solid = box(-np.array(size), size)
    moved = np.linalg.norm(leaning(solid).vertices - solid.vertices, axis=1)
    assert moved.max() < 3e-4 * 2 * max(size)


def test_a_body_lies_only_on_faces_below_its_centre_of_mass():
    """A tall box with its mass outside of the base does not stand."""
    corners = CORNERS * BOX
    on = {side.face for side in resting_sides({"box": corners}, np.array([0.0, 0.0, 0.02]))}
    assert {face[2] for face in on} == {-1.0, 1.0}  # it would topple from the other four


@pytest.fixture(name="upright_slab")
def _upright_slab(tmp_path, monkeypatch):
    """The folder of a slab whose sides are upright."""
    monkeypatch.setattr(slab, "DRAFT", 0.0)
    write_model(slab.build(slab.CATALOGUE["brownie"], "brownie"), tmp_path / "brownie")
    return tmp_path / "brownie"


def test_an_environment_warns_once_and_the_check_refuses(upright_slab):
    env = gymnasium.make("FleetTools/Spatula-v0", object=str(upright_slab))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for seed in range(3):
            env.reset(seed=seed)
    (warning,) = caught
    text = str(warning.message)
    assert "slab_collision_0" in text and "assets import" in text and str(upright_slab) in text
    report = make_report(CheckOptions(folder=upright_slab, scenes=0))
    (failed,) = [each for each in report["measurements"] if not each["holds"]]
    assert not report["fine"] and failed["name"] == "angle from upright"
    assert (
        "slab_collision_0 of slab on its face" in failed["subject"] and "import" in failed["remedy"]
    )


def test_what_is_fixed_to_the_table_may_have_upright_sides():
    folder = assets_root() / "objects" / "nail" / "round_nail"
    assert make_report(CheckOptions(folder=folder, scenes=0))["fine"]
