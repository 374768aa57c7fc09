"""What every model folder keeps, whoever generated it: those that ship, and random ones."""

import functools
import itertools
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydrake.geometry import Role, SceneGraphConfig
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph, MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex, RigidBody
from pydrake.systems.framework import DiagramBuilder

from fleet_tools import assets
from fleet_tools.assets.families import FAMILIES, family_module
from fleet_tools.assets.model import SIGNATURE, Keypoint, Model, differences, files, write

ROOT = Path(assets.__file__).parent
SHIPPED = {
    f"{family}/{name}": family_module(family).build(params, name)
    for family in FAMILIES
    for name, params in family_module(family).CATALOGUE.items()
}
seeds = st.integers(0, 2**32 - 1)


def sampled(family: str, seed: int) -> Model:
    module = family_module(family)
    return module.build(module.sample(np.random.default_rng(seed)), f"{family}_{seed}")


@functools.lru_cache(maxsize=32)
def load_mesh(path: Path) -> trimesh.Trimesh:
    mesh = trimesh.load(path, force="mesh", process=False)
    mesh.merge_vertices(merge_norm=True, merge_tex=True)
    return mesh


def load_plant(directory: Path) -> tuple[MultibodyPlant, ModelInstanceIndex]:
    """The model in Drake, with hydroelastic surfaces as wide as the simulator makes them."""
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlantSceneGraph(builder, 0.004)
    parser = Parser(plant)
    parser.SetStrictParsing()
    (instance,) = parser.AddModels(str(directory / "model.sdf"))
    plant.Finalize()
    config = SceneGraphConfig()
    config.default_proximity_properties.margin = 1e-4
    scene_graph.set_config(config)
    diagram = builder.Build()
    context = scene_graph.GetMyContextFromRoot(diagram.CreateDefaultContext())
    inspector = scene_graph.get_query_output_port().Eval(context).inspector()
    for geometry in inspector.GetAllGeometryIds(Role.kProximity):
        assert inspector.maybe_get_hydroelastic_mesh(geometry) is not None
    return plant, instance


def inertia_from_meshes(model: Model, directory: Path, body: RigidBody) -> np.ndarray:
    """Mass, first moment and inertia about the link's origin, from what is written, by trimesh."""
    (link,) = [link for link in model.links if link.name == body.name()]
    mass, moment, inertia = 0.0, np.zeros(3), np.zeros((3, 3))
    for part in link.parts:
        mesh = load_mesh(directory / f"meshes/{part.name}.obj")
        mesh.density = part.material.density
        c = mesh.center_mass
        mass += mesh.mass
        moment += mesh.mass * c
        inertia += mesh.moment_inertia + mesh.mass * (c @ c * np.eye(3) - np.outer(c, c))
    return np.concatenate([[mass], moment, inertia.ravel()])


def check(model: Model, directory: Path) -> None:
    text = (directory / "model.sdf").read_text()
    named = {uri.text for uri in ET.fromstring(text).iter("uri")}
    assert named == {f"meshes/{path.name}" for path in (directory / "meshes").iterdir()}

    triangles = vertices = 0
    for part in (part for link in model.links for part in link.parts):
        seen = load_mesh(directory / f"meshes/{part.name}.obj")
        assert seen.is_watertight and seen.is_winding_consistent and seen.volume > 0, part.name
        triangles += len(seen.faces)
        for k in range(len(part.collision)):
            felt = load_mesh(directory / f"meshes/{part.name}_collision_{k}.obj")
            assert felt.is_watertight and felt.volume > 0, part.name
            assert felt.volume == pytest.approx(felt.convex_hull.volume, rel=1e-5), part.name
            vertices += len(felt.vertices)
    assert triangles < 2000 and vertices <= 60, (triangles, vertices)

    plant, instance = load_plant(directory)
    assert plant.GetModelInstanceName(instance) == model.name
    context = plant.CreateDefaultContext()
    for index in plant.GetBodyIndices(instance):
        body = plant.get_body(index)
        M = body.CalcSpatialInertiaInBodyFrame(context)
        inertia = M.CalcRotationalInertia().CopyToFullMatrix3().ravel()
        written = np.concatenate([[M.get_mass()], M.CalcComMoment(), inertia])
        np.testing.assert_allclose(
            written, inertia_from_meshes(model, directory, body), rtol=1e-5, atol=1e-9
        )

    said = yaml.safe_load((directory / "keypoints.yaml").read_text())
    assert (said["family"], said["kind"]) == (model.family, model.kind)
    for name, point in said["keypoints"].items():
        assert plant.HasBodyNamed(point["link"], instance), name
        assert is_marked(model, directory, name, said["keypoints"]), name


def is_marked(model: Model, directory: Path, name: str, points: dict) -> bool:
    """Whether a keypoint can be seen: on the surface, or halfway between two others that are."""

    def on_surface(name: str) -> bool:
        return distance_to_surface(model, directory, **points[name]) < 2e-9

    def halfway(pair: tuple[str, str]) -> bool:
        ends = np.array([points[end]["position"] for end in pair])
        return np.allclose(ends.mean(axis=0), points[name]["position"], rtol=0, atol=2e-9)

    link = [other for other in points if points[other]["link"] == points[name]["link"]]
    return on_surface(name) or any(
        halfway(pair) and all(map(on_surface, pair)) for pair in itertools.combinations(link, 2)
    )


def distance_to_surface(model: Model, directory: Path, link: str, position: list) -> float:
    (owner,) = [one for one in model.links if one.name == link]
    meshes = [load_mesh(directory / f"meshes/{part.name}.obj") for part in owner.parts]
    corners = np.concatenate([mesh.triangles for mesh in meshes])
    nearest = trimesh.triangles.closest_point(corners, np.tile(position, (len(corners), 1)))
    return np.linalg.norm(nearest - position, axis=1).min()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_folder_is_sound(name):
    model = SHIPPED[name]
    check(model, model.folder(ROOT))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_folder_is_what_the_generator_writes(name):
    model = SHIPPED[name]
    assert differences(model, model.folder(ROOT)) == []


def test_every_folder_that_names_the_generator_is_still_written_by_it():
    for keypoints in ROOT.glob("*s/*/*/keypoints.yaml"):
        if keypoints.read_text().startswith(SIGNATURE):
            assert f"{keypoints.parent.parent.name}/{keypoints.parent.name}" in SHIPPED


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=4, deadline=None)
@given(seed=seeds)
def test_random_member_is_sound(family, seed):
    model = sampled(family, seed)
    load_mesh.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / model.name
        write(model, directory)
        check(model, directory)


@pytest.mark.parametrize("family", FAMILIES)
def test_same_generator_state_same_bytes(family):
    assert files(sampled(family, 5)) == files(sampled(family, 5))
    assert files(sampled(family, 5)) != files(sampled(family, 6))


@given(st.tuples(*[st.floats(-1, 1) | st.floats(-1e-3, 1e-3)] * 3))
def test_yaml_reads_every_position_as_numbers(position):
    model = replace(SHIPPED["knife/chef"], keypoints={"tip": Keypoint("knife", position)})
    said = yaml.safe_load(files(model)["keypoints.yaml"])["keypoints"]["tip"]["position"]
    assert [type(x) for x in said] == [float] * 3
    np.testing.assert_allclose(said, position, atol=0.5e-9, rtol=0)


def test_write_replaces_its_own_folder_and_leaves_a_foreign_one(tmp_path):
    one, other = (SHIPPED[f"hammer/{name}"] for name in ("claw", "club"))
    directory = tmp_path / "tools" / "mine"
    write(one, directory)
    write(other, directory)
    assert differences(other, directory) == []
    assert list(directory.parent.iterdir()) == [directory]

    (directory / "keypoints.yaml").write_text("family: hammer\n")
    with pytest.raises(FileExistsError, match="mine"):
        write(one, directory)
    assert (directory / "keypoints.yaml").read_text() == "family: hammer\n"
