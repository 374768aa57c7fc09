"""A user's own models: what they lack is refused with the remedy, or filled in with a warning."""

import re
import shutil
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import trimesh
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
from pydrake.systems.framework import DiagramBuilder
from support.foreign_models import TASKS, foreign_tool, foreign_tools
from support.foreign_shapes import moved, obj_text, rounded_box

from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.arm import load_robot
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.catalog import find_model, load_model
from fleet_tools.sim.contact_shapes import complete_contact, contact_hint
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
    return build_world(load_task("hammer"), load_robot(), load_model(folder, "tool"), object)


def test_a_urdf_without_hydroelastic_properties_gets_them_with_a_warning(bar):
    with pytest.warns(UserWarning, match=r"bar\.urdf.*shapes shell have neither.*1e\+08 Pa"):
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


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([SHAPE], r"'bar' lacks <inertial>.*assets import"),
        ([INERTIA.replace('<mass value="0.3"/>', ""), SHAPE], "lacks <mass>"),
        ([INERTIA.replace("ixx=", "xx="), SHAPE], "lacks <inertia>"),
        ([INERTIA.replace("1e-4", "1e-1"), SHAPE], "which are impossible"),
        ([INERTIA.replace("0.3", "0"), SHAPE], "which are impossible"),
        ([INERTIA, VISUAL], "no <collision>"),
    ],
)
def test_properties_that_drake_would_invent_are_refused(parts, message, bar):
    folder = bar(*parts)
    with pytest.raises(ConfigError, match=message):
        world_with(folder)


@pytest.mark.parametrize("kind", ["tool", "object"])
def test_no_shape_of_the_package_is_mended(kind):
    folders = sorted((assets_root() / f"{kind}s").glob("*/*/model.sdf"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for file in folders:
            plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(), DiagramBuilder())
            (instance,) = Parser(plant).AddModels(file)
            complete_contact(plant, scene_graph, instance, file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("noisy_hammer", r"shapes piece_1 by a hydroelastic margin.*a margin of 0\."),  # Drake's no
        ("rounded_wrench", r"shapes piece_1, piece_2, piece_3 by a hydroelastic margin"),
        ("dusty_spatula", r"piece_2 by a.*without vertices up to \S+ um outside"),
        ("fine_spatula", r"piece_2 \(1204\) is slow.*13 times as long"),
    ],
)
def test_foreign_shapes_are_mended_and_named_once(name, message, tmp_path):
    tool = foreign_tool(name)
    folder = tool.write(tmp_path)
    with pytest.warns(UserWarning) as warned:
        env = gymnasium.make(TASKS[tool.family], tool=str(folder))
        env.reset(seed=0)
        env.reset(seed=0)
    assert len([w for w in warned if re.search(message, str(w.message))]) == 1
    env.close()


@pytest.mark.filterwarnings("ignore:.*is slow")
def test_a_foreign_object_rests_without_a_margin(tmp_path):
    own = shutil.copytree(assets_root() / "objects" / "slab" / "patty", tmp_path / "patty")
    sdf, file = own / "model.sdf", own / "meshes" / "slab_collision_0.obj"
    text = sdf.read_text().replace("collision_0.vtk</uri>", "collision_0.obj</uri>")
    sdf.write_text(
        text.replace("collision_0.obj</uri>", "collision_0.obj</uri><drake:declare_convex />")
    )
    low, high = trimesh.load_mesh(own / "meshes" / "slab.obj").bounds
    file.write_text(obj_text(moved(rounded_box(high - low, 0.003), *(low + high) / 2)))
    env = gymnasium.make("FleetTools/Spatula-v0", object=str(own))
    with pytest.warns(UserWarning, match="a margin of 0"):
        env.reset(seed=3)
    for _ in range(6):
        env.step(np.zeros(6, np.float32))
        speeds = [np.linalg.norm(v) for _, v in unwrap(env).world_state().links.values()]
        assert max(speeds) < 1e-5
    env.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(margin|slow)")
@pytest.mark.parametrize("tool", foreign_tools(), ids=lambda tool: tool.name)
def test_no_foreign_tool_ends_in_a_simulation_error(tool, tmp_path):
    env = gymnasium.make(TASKS[tool.family], tool=str(tool.write(tmp_path)))
    outcomes = [rollout(env, ExpertPolicy(env), seed=seed).outcome for seed in range(2)]
    assert "simulation_error" not in outcomes
    assert "success" in outcomes
    env.close()


def test_contact_surfaces_that_drake_cannot_make_are_refused_with_the_remedy(tmp_path):
    own = shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "own")
    bent = sorted((own / "meshes").glob("*_collision_0.obj"))[0]
    corners = trimesh.creation.box((0.03, 0.03, 0.1)).vertices
    dust = np.random.default_rng(0).normal(size=(3, 8, 3)) * 1e-9 + corners
    lines = [f"v {x:.17g} {y:.17g} {z:.17g}" for x, y, z in dust.reshape(-1, 3)]
    bent.write_text("\n".join([*lines, "f 1 2 3", ""]))
    with pytest.raises(ConfigError, match=rf"own/model\.sdf.*shapes {bent.stem}: .*assets import"):
        gymnasium.make("FleetTools/Hammer-v0", tool=str(own)).reset(seed=0)


def test_an_error_of_contact_in_an_episode_names_the_models_and_the_remedy():
    error = RuntimeError("Cannot instantiate plane from normal n_F = [0 0 1e-12]")
    assert re.search(r"a\.sdf or b\.sdf is too small.*assets import",
                     contact_hint(error, [Path("a.sdf"), Path("b.sdf")]))  # fmt: skip
    assert contact_hint(RuntimeError("the solver failed"), [Path("a.sdf")]) == ""


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", r"assets import .*own\.stl --kind tool --family"),
        ("own.stl", r"is a mesh.*assets import .*--family hammer"),
        ("own.sdf", r"the path of the folder.*keypoints\.yaml"),
    ],
)
def test_the_message_about_a_mesh_or_its_folder_tells_how_to_import_it(tmp_path, file, message):
    (tmp_path / (file or "own.stl")).write_bytes(b"x")
    with pytest.raises(ConfigError, match=message):
        find_model("tool", "hammer", str(tmp_path / file))
