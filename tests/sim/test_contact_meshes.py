"""Hydroelastic meshes of foreign shapes: mended ones are near the originals, and contact works."""

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from pydrake.geometry import (
    AddCompliantHydroelasticProperties,
    Box,
    Convex,
    GeometryInstance,
    ProximityProperties,
    RoleAssign,
    SceneGraph,
    SceneGraphConfig,
    Shape,
)
from pydrake.math import RigidTransform
from scipy.spatial import ConvexHull
from support.foreign_shapes import dusty, noisy, rounded_box

from fleet_tools.sim.contact_meshes import (
    LEAST_CROSS_PRODUCT,
    MendedShape,
    least_cross_product,
    mend_alone,
    mend_shape,
)
from fleet_tools.sim.world import HYDROELASTIC_MARGIN

BAR = trimesh.creation.box((0.03, 0.03, 0.1))
BLADE = trimesh.creation.box((0.1, 0.06, 0.0006))
ROD = trimesh.creation.cylinder(0.015, 0.1, sections=24)


class Scene:
    """A scene graph with one compliant shape, which was mended."""

    def __init__(self, shape: Shape) -> None:
        config, properties = SceneGraphConfig(), ProximityProperties()
        config.default_proximity_properties.margin = HYDROELASTIC_MARGIN
        AddCompliantHydroelasticProperties(0.01, 1e8, properties)
        self.graph = SceneGraph(config)
        self.source = self.graph.RegisterSource("test")
        instance = GeometryInstance(RigidTransform(), shape, "model::shape")
        self.id = self.graph.RegisterAnchoredGeometry(self.source, instance)
        self.graph.AssignRole(self.source, self.id, properties)
        self.mended = mend_shape(self.graph, self.source, self.id)

    def mesh(self):
        """Returns the hydroelastic mesh in a context, where Drake adds its defaults."""
        context = self.graph.CreateDefaultContext()
        inspector = self.graph.get_query_output_port().Eval(context).inspector()
        return inspector.maybe_get_hydroelastic_mesh(self.id)

    def margin(self) -> float:
        properties = self.graph.model_inspector().GetProximityProperties(self.id)
        return properties.GetProperty("hydroelastic", "margin")


def scene_of(mesh: trimesh.Trimesh) -> Scene:
    return Scene(Convex(np.asarray(mesh.vertices).T, "shape"))


@given(
    st.sampled_from([BAR, BLADE, ROD]),
    st.floats(-6.5, -4),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_every_mended_hull_is_usable_and_near_the_original(mesh, exponent, doubled, seed):
    foreign = dusty(mesh, 10**exponent, seed) if doubled else noisy(mesh, 2, 10**exponent, seed)
    scene = scene_of(foreign)
    assert scene.mended.error is None
    found = scene.mesh()
    assert least_cross_product(found) >= LEAST_CROSS_PRODUCT
    assert found.num_elements() == scene.mended.elements
    if scene.mended.without_margin:  # the mesh is then that of the hull itself
        original = ConvexHull(foreign.vertices).equations
        vertices = np.array(found.vertices())
        assert (original[:, :3] @ vertices.T + original[:, 3:]).max() < 1e-12
        mended = ConvexHull(vertices).equations
        outside = (mended[:, :3] @ foreign.vertices.T + mended[:, 3:]).max()
        assert outside <= scene.mended.moved + 1e-9
        assert scene.mended.moved < 3 * 10**exponent + 1e-5


@pytest.mark.parametrize("mesh", [BAR, BLADE, ROD])
def test_a_simple_hull_keeps_its_margin_and_its_vertices(mesh: trimesh.Trimesh) -> None:
    scene = scene_of(mesh)
    assert scene.mended == MendedShape("shape", scene.mesh().num_elements())
    assert scene.margin() == HYDROELASTIC_MARGIN


def test_a_margin_that_only_makes_slivers_is_left_out() -> None:
    scene = scene_of(rounded_box((0.03, 0.03, 0.1), 0.004))  # Drake makes it, and fails in contact
    assert scene.mended.without_margin and scene.mended.moved == 0 and scene.margin() == 0


def test_a_margin_of_the_users_own_is_kept() -> None:
    properties = ProximityProperties()
    AddCompliantHydroelasticProperties(0.01, 1e8, properties)
    properties.AddProperty("hydroelastic", "margin", 5e-4)
    scene = Scene(Box(0.1, 0.1, 0.1))
    scene.graph.AssignRole(scene.source, scene.id, properties, RoleAssign.kReplace)
    assert not mend_shape(scene.graph, scene.source, scene.id).without_margin
    assert scene.margin() == 5e-4


def test_mending_twice_changes_nothing() -> None:
    scene = scene_of(dusty(BAR, 1e-6))
    assert scene.mended.moved > 0
    before = np.array(scene.mesh().vertices())
    again = mend_shape(scene.graph, scene.source, scene.id)
    assert again == MendedShape("shape", scene.mended.elements)
    assert np.array_equal(np.array(scene.mesh().vertices()), before)


def test_a_hull_that_drake_cannot_use_at_all_is_found(tmp_path) -> None:
    corners = np.random.default_rng(0).normal(size=(3, 8, 3)) * 1e-9 + BAR.vertices
    for name, points in (("dust", corners.reshape(-1, 3)), ("bar", BAR.vertices)):
        lines = [f"v {x:.17g} {y:.17g} {z:.17g}" for x, y, z in points]
        (tmp_path / f"{name}.obj").write_text("\n".join([*lines, "f 1 2 3", ""]))
    assert "degenerate" in str(mend_alone(Convex(tmp_path / "dust.obj"), margin=0.0).error)
    assert mend_alone(Convex(tmp_path / "bar.obj"), margin=1e-4).error is None
