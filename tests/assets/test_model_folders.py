"""Generated model folders, those that ship and random ones, and the program that writes them."""

import functools
import itertools
import json
import re
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydrake.geometry import Role, SceneGraphConfig
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph, MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex, RigidBody
from pydrake.systems.framework import DiagramBuilder
from scipy.spatial import ConvexHull
from support.shares import few, quick_first

from fleet_tools.assets.__main__ import main, random_members
from fleet_tools.assets.families import family_names, find_family
from fleet_tools.assets.model_description import (
    SIGNATURE,
    KeypointDescription,
    ModelDescription,
    Position,
)
from fleet_tools.assets.model_folder import (
    changed_files,
    collision_path,
    model_files,
    write_model,
)
from fleet_tools.config.file_access import assets_root

ROOT = assets_root()
SHIPPED = [
    f"{family}/{name}" for family in family_names() for name in find_family(family).catalogue
]
FIRST = {f"{family}/{next(iter(find_family(family).catalogue))}" for family in family_names()}
seeds = st.integers(0, 2**32 - 1)


def shipped(name: str) -> ModelDescription:
    family, _, member = name.partition("/")
    return find_family(family).member(member)


def sampled(family: str, seed: int) -> ModelDescription:
    found = find_family(family)
    return found.build(found.sample(np.random.default_rng(seed)), f"random_{seed}")


@functools.lru_cache(maxsize=32)
def load_mesh(path: Path) -> trimesh.Trimesh:
    mesh = trimesh.load_mesh(path, process=False)
    assert isinstance(mesh, trimesh.Trimesh)
    mesh.merge_vertices(merge_norm=True, merge_tex=True)
    return mesh


def load_plant(directory: Path) -> tuple[MultibodyPlant, ModelInstanceIndex]:
    """Loads a model in Drake, and checks its hydroelastic geometry with the simulator's margin."""
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlantSceneGraph(builder, 0.004)
    parser = Parser(plant)
    parser.SetStrictParsing()
    (instance,) = parser.AddModels(directory / "model.sdf")
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


def inertia_from_meshes(model: ModelDescription, directory: Path, body: RigidBody) -> np.ndarray:
    """Returns mass, first moment and inertia about the link's origin, by trimesh, (13,)."""
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


ON_AN_AXIS = {("screw", "top"), ("screwdriver", "flank")}
"""Keypoints that lie above a slot, or within a bit, where nobody can click."""


def tetrahedra(path: Path) -> tuple[np.ndarray, float]:
    """Returns the points of a VTK file, (n, 3), and the volume of its tetrahedra."""
    lines = path.read_text().splitlines()
    (at, number), (cells_at, cells) = (
        (k, int(line.split()[1]))
        for k, line in enumerate(lines)
        if line.startswith(("POINTS ", "CELLS "))
    )
    points = np.array([line.split() for line in lines[at + 1 :][:number]], float)
    corners = points[np.array([line.split()[1:] for line in lines[cells_at + 1 :][:cells]], int)]
    volumes = np.linalg.det(corners[:, 1:] - corners[:, :1]) / 6
    assert volumes.min() > 0
    return points, float(volumes.sum())


def check(model: ModelDescription, directory: Path) -> None:
    text = (directory / "model.sdf").read_text()
    named = {uri.text for uri in ET.fromstring(text).iter("uri")}
    assert named == {f"meshes/{path.name}" for path in (directory / "meshes").iterdir()}

    triangles = vertices = 0
    for part in (part for link in model.links for part in link.parts):
        visual = load_mesh(directory / f"meshes/{part.name}.obj")
        assert visual.is_watertight and visual.is_winding_consistent, part.name
        assert visual.volume > 0, part.name
        triangles += len(visual.faces)
        for k in range(len(part.collision)):
            path = directory / collision_path(part, k)
            if path.suffix == ".vtk":
                points, volume = tetrahedra(path)
            else:
                collision = load_mesh(path)
                assert collision.is_watertight and collision.volume > 0, part.name
                points, volume = collision.vertices, collision.volume
            assert volume == pytest.approx(ConvexHull(points).volume, rel=1e-5), part.name
            vertices += len(points)
    # A hole takes several convex pieces: 104 vertices of screws in their blocks, else at most 60.
    assert triangles < 2000 and vertices <= (104 if model.family == "screw" else 60)

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

    labels = yaml.safe_load((directory / "keypoints.yaml").read_text())
    assert (labels["family"], labels["kind"]) == (model.family, model.kind)
    for name, point in labels["keypoints"].items():
        assert plant.HasBodyNamed(point["link"], instance), name
        seen = is_visible(model, directory, name, labels["keypoints"])
        assert seen != ((model.family, name) in ON_AN_AXIS), name


def is_visible(
    model: ModelDescription, directory: Path, name: str, points: dict[str, dict[str, Any]]
) -> bool:
    """Whether a keypoint is on the surface, or halfway between two others that are."""

    def on_surface(name: str) -> bool:
        return distance_to_surface(model, directory, **points[name]) < 2e-9

    def halfway(pair: tuple[str, str]) -> bool:
        ends = np.array([points[end]["position"] for end in pair])
        return np.allclose(ends.mean(axis=0), points[name]["position"], rtol=0, atol=2e-9)

    link = [other for other in points if points[other]["link"] == points[name]["link"]]
    return on_surface(name) or any(
        halfway(pair) and all(map(on_surface, pair)) for pair in itertools.combinations(link, 2)
    )


def distance_to_surface(
    model: ModelDescription, directory: Path, link: str, position: list[float]
) -> float:
    (found,) = [each for each in model.links if each.name == link]
    meshes = [load_mesh(directory / f"meshes/{part.name}.obj") for part in found.parts]
    corners = np.concatenate([mesh.triangles for mesh in meshes])
    nearest = trimesh.triangles.closest_point(corners, np.tile(position, (len(corners), 1)))
    return np.linalg.norm(nearest - position, axis=1).min()


@pytest.mark.parametrize("name", quick_first([*sorted(FIRST), *SHIPPED], len(FIRST)))
def test_shipped_folder_is_sound(name: str) -> None:
    model = shipped(name)
    check(model, model.folder(ROOT))


def test_every_folder_that_names_the_generator_is_written_by_it() -> None:
    for keypoints in ROOT.glob("*s/*/*/keypoints.yaml"):
        if keypoints.read_text().startswith(SIGNATURE):
            assert f"{keypoints.parent.parent.name}/{keypoints.parent.name}" in SHIPPED


@pytest.mark.parametrize("family", family_names())
@few(2)
@given(seed=seeds)
def test_random_member_is_sound(family: str, seed: int) -> None:
    model = sampled(family, seed)
    load_mesh.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / model.name
        write_model(model, directory)
        check(model, directory)


@given(st.tuples(*[st.floats(-1, 1) | st.floats(-1e-3, 1e-3)] * 3))
def test_yaml_reads_every_position_as_floats(position: Position) -> None:
    keypoints = {"tip": KeypointDescription("knife", position)}
    files = model_files(replace(shipped("knife/chef"), links=(), keypoints=keypoints))
    written = yaml.safe_load(files["keypoints.yaml"])["keypoints"]["tip"]["position"]
    assert [type(x) for x in written] == [float] * 3
    np.testing.assert_allclose(written, position, atol=0.5e-9, rtol=0)


# --- The program ----------------------------------------------------------------------------


def reports(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 0) -> Any:
    """Returns the report of each model by its name."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return {report["name"]: report for report in json.loads(capsys.readouterr().out)["models"]}


def test_regeneration_equals_the_shipped_folders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0  # the command `generate` may be omitted
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == sum(len(find_family(family).catalogue) for family in family_names())
    assert all(line.startswith("unchanged") for line in lines)


def test_write_then_check_then_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--family", "nail", "--output", str(tmp_path)]
    assert main([*arguments, "--check"]) == 1
    assert "6 of 6 models differ" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # --check writes nothing
    assert {r["state"] for r in reports(capsys, arguments).values()} == {"written"}
    assert {r["state"] for r in reports(capsys, arguments).values()} == {"unchanged"}

    (tmp_path / "objects/nail/round_nail/meshes/head.obj").write_text("")
    (tmp_path / "objects/nail/round_nail/meshes/left_over.obj").write_text("")
    checked = reports(capsys, [*arguments, "--check"], code=1)
    assert checked["round_nail"]["changed"] == ["meshes/head.obj", "meshes/left_over.obj"]
    assert checked["dowel_pin"]["state"] == "unchanged"


def test_random_members_depend_only_on_seed_and_index(tmp_path: Path) -> None:
    assert main(["--count", "2", "--seed", "7", "--output", str(tmp_path)]) == 0
    assert sorted(p.name for p in (tmp_path / "tools/hammer").iterdir()) == [
        "hammer_000",
        "hammer_001",
    ]
    few, many = (random_members("hammer", count, 7) for count in (2, 3))
    assert few == {name: many[name] for name in few}
    for family in family_names():
        assert random_members(family, 1, 7) != random_members(family, 1, 8)
        assert model_files(sampled(family, 5)) == model_files(sampled(family, 5))


def test_only_generated_folders_are_replaced(tmp_path, capsys):
    one, other = (shipped(f"hammer/{name}") for name in ("claw", "club"))
    directory = tmp_path / "tools/hammer/claw"
    write_model(other, directory)
    write_model(one, directory)
    assert changed_files(one, directory) == []
    assert list(directory.parent.iterdir()) == [directory]

    (directory / "keypoints.yaml").write_text("family: hammer\n")
    with pytest.raises(FileExistsError, match="claw was not written by a generator"):
        write_model(one, directory)
    assert main(["--family", "hammer", "--output", str(tmp_path)]) == 1
    assert (directory / "keypoints.yaml").read_text() == "family: hammer\n"
    assert "claw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "hamer"], "'hamer'.*'hammer'"),
        (["--count", "3"], "--count 3 needs --output"),
        (["--count", "0", "--output", "x"], "--count: .*greater than or equal to 1"),
        (["--seed", "3"], "--seed 3.*--count"),
        (["--count", "1", "--seed", "-1", "--output", "x"], "--seed: .*greater"),
        (["--output", __file__], "is a file"),
        (["generat"], "generat.*generate, import"),
    ],
)
def test_bad_usage_is_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert re.search(message, error), error
