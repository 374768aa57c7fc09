"""A user's own models: what they lack is refused with the remedy, or filled in with a warning."""

import shutil
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import trimesh

from fleet_tools.config.resources import assets_root
from fleet_tools.config.tasks import load_task
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import find_model, load_model
from fleet_tools.sim.world import World, build_world

LABELS = """family: hammer
kind: tool
keypoints:
  head: {link: bar, position: [0.1, 0, 0.02]}
  side: {link: bar, position: [0.1, 0, -0.02]}
  tail: {link: bar, position: [-0.1, 0, 0]}
"""
INERTIA = """<inertial><mass value="0.3"/>
<inertia ixx="1e-4" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>"""
SHAPE = '<collision name="shell"><geometry><box size="0.2 0.02 0.04"/></geometry></collision>'
VISUAL = '<visual><geometry><box size="0.2 0.02 0.04"/></geometry></visual>'


@pytest.fixture
def bar(tmp_path):
    """A function that writes a URDF of one link."""

    def write(*parts: str) -> Path:
        folder = tmp_path / "bar"
        folder.mkdir(exist_ok=True)
        (folder / "keypoints.yaml").write_text(LABELS)
        text = f'<robot name="bar"><link name="bar">{"".join(parts)}</link></robot>'
        (folder / "bar.urdf").write_text(text)
        return folder

    return write


def world_with(folder: Path) -> World:
    object = find_model("object", "nail", "round_nail")
    return build_world(load_task("hammer"), load_model(folder, "tool"), object)


def test_a_urdf_without_hydroelastic_properties_gets_them_with_a_warning(bar):
    with pytest.warns(UserWarning, match=r"bar\.urdf.*tool::bar::shell have neither.*1e\+08 Pa"):
        world = world_with(bar(INERTIA, SHAPE))
    context = world.scene_graph.GetMyContextFromRoot(world.diagram.CreateDefaultContext())
    inspector = world.scene_graph.get_query_output_port().Eval(context).inspector()
    (body,) = world.bodies(world.tool)
    (shape,) = world.plant.GetCollisionGeometriesForBody(body)
    assert inspector.maybe_get_hydroelastic_mesh(shape) is not None


@pytest.mark.filterwarnings("ignore:.*have neither")
def test_an_environment_runs_with_a_urdf(bar):
    env = gymnasium.make("FleetTools/Hammer-v0", tool=str(bar(INERTIA, SHAPE)))
    env.reset(seed=0)
    outcomes = [env.step(np.zeros(6, np.float32))[-1]["outcome"] for _ in range(3)]
    assert outcomes == ["running"] * 3
    env.close()


def test_the_packages_models_need_nothing_filled_in():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world_with(assets_root() / "tools" / "hammer" / "claw")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([SHAPE], r"'bar' lacks <inertial>.*assets import"),
        ([INERTIA.replace('<mass value="0.3"/>', ""), SHAPE], "lacks <mass>"),
        ([INERTIA.replace("ixx=", "xx="), SHAPE], "lacks <inertia>"),
        ([INERTIA.replace("1e-4", "1e-1"), SHAPE], "which no body can have"),
        ([INERTIA.replace("0.3", "0"), SHAPE], "which no body can have"),
        ([INERTIA, VISUAL], "no <collision>"),
    ],
)
def test_properties_that_drake_would_invent_are_refused(parts, message, bar):
    folder = bar(*parts)
    with pytest.raises(ConfigError, match=message):
        world_with(folder)


def test_contact_surfaces_that_drake_cannot_make_are_refused_with_the_remedy(tmp_path):
    own = shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "own")
    bent = sorted((own / "meshes").glob("*_collision_0.obj"))[0]
    trimesh.creation.icosphere(1, 0.03).export(bent)  # five and six planes at a vertex
    with pytest.raises(ConfigError, match=r"own/model\.sdf.*assets import.*hydroelastic_margin"):
        gymnasium.make("FleetTools/Hammer-v0", tool=str(own)).reset(seed=0)


def test_the_message_about_a_folder_with_only_a_mesh_tells_how_to_import_it(tmp_path):
    (tmp_path / "own.stl").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"assets import .*own\.stl --kind tool --family"):
        load_model(tmp_path, "tool")


def test_the_message_about_a_mesh_in_place_of_a_folder_tells_how_to_import_it(tmp_path):
    (tmp_path / "own.stl").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"is a mesh.*assets import .*--family hammer"):
        find_model("tool", "hammer", str(tmp_path / "own.stl"))
    (tmp_path / "own.sdf").write_text("x")
    with pytest.raises(ConfigError, match=r"by the path of its folder.*keypoints\.yaml"):
        find_model("tool", "hammer", str(tmp_path / "own.sdf"))
