"""Models of a user's own: what they lack is refused with the remedy, or filled in and said."""

import shutil
import warnings

import gymnasium as gym
import pytest
import trimesh

import fleet_tools  # noqa: F401 - registers the environments
from fleet_tools.config.tasks import load_task
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import find_model, load_model
from fleet_tools.sim.world import build_world
from fleet_tools.utils.resources import assets_root

LABELS = """family: hammer
kind: tool
keypoints:
  head: {link: bar, position: [0.1, 0, 0.02]}
  side: {link: bar, position: [0.1, 0, -0.02]}
  tail: {link: bar, position: [-0.1, 0, 0]}
"""
INERTIA = """<inertial><mass value="0.3"/>
<inertia ixx="1e-4" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>"""
SHAPE = '<collision name="felt"><geometry><box size="0.2 0.02 0.04"/></geometry></collision>'
SEEN = '<visual><geometry><box size="0.2 0.02 0.04"/></geometry></visual>'


@pytest.fixture
def bar(tmp_path):
    """Writes a URDF of one link."""

    def write(*parts):
        folder = tmp_path / "bar"
        folder.mkdir(exist_ok=True)
        (folder / "keypoints.yaml").write_text(LABELS)
        text = f'<robot name="bar"><link name="bar">{"".join(parts)}</link></robot>'
        (folder / "bar.urdf").write_text(text)
        return folder

    return write


def world(folder):
    object = find_model("object", "nail", "round_nail")
    return build_world(load_task("hammer"), load_model(folder, "tool"), object)


def test_a_urdf_without_hydroelastic_properties_is_felt_as_a_surface_and_says_so(bar):
    with pytest.warns(UserWarning, match=r"bar\.urdf.*tool::bar::felt say neither.*1e\+08 Pa"):
        built = world(bar(INERTIA, SHAPE))
    context = built.scene_graph.GetMyContextFromRoot(built.diagram.CreateDefaultContext())
    inspector = built.scene_graph.get_query_output_port().Eval(context).inspector()
    (body,) = built.bodies(built.tool)
    (shape,) = built.plant.GetCollisionGeometriesForBody(body)
    assert inspector.maybe_get_hydroelastic_mesh(shape) is not None


@pytest.mark.filterwarnings("ignore:.*say neither")
def test_an_environment_runs_with_a_urdf_and_places_it_as_held(bar):
    env = gym.make("FleetTools/Hammer-v0", tool=str(bar(INERTIA, SHAPE)))
    env.reset(seed=0)
    for _ in range(3):
        _, _, _, _, info = env.step(env.action_space.sample() * 0)
    assert info["outcome"] == "running"
    env.close()


def test_what_ships_needs_nothing_filled_in():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world(assets_root() / "tools" / "hammer" / "claw")


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ([SHAPE], r"'bar' lacks <inertial>.*assets import"),
        ([INERTIA.replace('<mass value="0.3"/>', ""), SHAPE], "lacks <mass>"),
        ([INERTIA.replace("ixx=", "xx="), SHAPE], "lacks <inertia>"),
        ([INERTIA.replace("1e-4", "1e-1"), SHAPE], "which no body has"),
        ([INERTIA.replace("0.3", "0"), SHAPE], "which no body has"),
        ([INERTIA, SEEN], "no <collision>"),
    ],
)
def test_what_drake_would_invent_is_refused(parts, named, bar):
    folder = bar(*parts)
    with pytest.raises(ConfigError, match=named):
        world(folder)


def test_contact_that_drake_cannot_make_is_refused_by_file_and_remedy(tmp_path):
    own = shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "own")
    bent = sorted((own / "meshes").glob("*_collision_0.obj"))[0]
    trimesh.creation.icosphere(1, 0.03).export(bent)  # five and six planes at a vertex
    with pytest.raises(ConfigError, match=r"own/model\.sdf.*assets import.*hydroelastic_margin"):
        gym.make("FleetTools/Hammer-v0", tool=str(own)).reset(seed=0)


def test_a_folder_with_only_a_mesh_says_how_to_import_it(tmp_path):
    (tmp_path / "mine.stl").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"assets import .*mine\.stl --kind tool --family"):
        load_model(tmp_path, "tool")


def test_a_mesh_in_place_of_a_folder_says_how_to_import_it(tmp_path):
    (tmp_path / "mine.stl").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"is a mesh.*assets import .*--family hammer"):
        find_model("tool", "hammer", str(tmp_path / "mine.stl"))
    (tmp_path / "mine.sdf").write_text("x")
    with pytest.raises(ConfigError, match=r"by the path of its folder.*keypoints\.yaml"):
        find_model("tool", "hammer", str(tmp_path / "mine.sdf"))
