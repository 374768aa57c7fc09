"""What a new process loads and computes: imports are light, and contents are the same there."""

import json
import re
from pathlib import Path

import pytest
from support.environments import IDS
from support.processes import ROOT, run_python

from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.sim.scene import sample_scene

POSE = Pose(translation_m=(0.1, -2e-300, 3e300))
HEAVY = (
    *(
        "pydrake",
        "torch",
        "ray",
        "open3d",
        "trimesh",
        "h5py",
        "pyarrow",
        "pydantic",
        "scipy",
        "yaml",
    ),
    *("coacd", "manifold3d", "matplotlib", "numba", "tyro"),
)
CODE = """
import contextlib, io, json, sys
import gymnasium, fleet_tools

def loaded():
    return sorted(set(json.loads(sys.argv[1])) & set(sys.modules))

found = {"import": loaded(), "ids": [n for n in gymnasium.registry if n.startswith("FleetTools/")]}

from fleet_tools.assets.__main__ import main
found["help"] = []
for command in [], ["generate"], ["import"], ["check"], ["mend"]:
    out = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        main([*command, "--help"])
    found["help"].append(out.getvalue())
found["of help"] = loaded()

from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.sim.scene import sample_scene
found["digest"] = Pose(**json.loads(sys.argv[2])).digest()
scenes = [sample_scene(load_task(name), seed) for name in task_names() for seed in range(5)]
found["scenes"] = [scene.to_json() for scene in scenes]
found["of scenes"] = loaded()

env = gymnasium.make("fleet_tools:FleetTools/Hammer-v0")
env.reset(seed=0)
found["outcome"] = env.step(env.action_space.sample() * 0)[-1]["outcome"]
found["of episodes"] = loaded()
found["libraries"] = [line.split()[-1].split("/")[-1] for line in open("/proc/self/maps")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module", name="found")
def _found():
    return run_python(CODE, json.dumps(HEAVY), POSE.to_json())


def test_importing_the_package_is_light_and_registers(found):
    assert found["import"] == []
    assert sorted(found["ids"]) == sorted([*IDS, CUSTOM_ID])


def test_help_of_models_loads_no_heavy_library(found):
    program, generate, import_, check, mend = found["help"]
    assert "{generate,import,check,mend}" in program and "Folder of the model" in mend
    assert "--family" in generate and "--keypoint" in import_ and "--scenes" in check
    assert {"pydantic", "tyro", "yaml"} >= set(found["of help"])


def test_tasks_and_scenes_load_without_drake_and_are_the_same(found):
    assert {"pydantic", "tyro", "yaml"} >= set(found["of scenes"])
    assert found["digest"] == POSE.digest()
    here = [sample_scene(load_task(name), seed) for name in task_names() for seed in range(5)]
    assert found["scenes"] == [scene.to_json() for scene in here]


def test_an_environment_needs_neither_an_import_of_the_package_nor_torch_nor_gl(found):
    assert found["outcome"] == "running" and "torch" not in found["of episodes"]
    assert any(name.startswith("libdrake") for name in found["libraries"])
    libraries = ("libEGL", "libGL", "libOpenGL", "libOSMesa", "libgbm", "libgallium", "swrast")
    assert not [name for name in found["libraries"] if name.startswith(libraries)]


# --- The wall around the environment ---------------------------------------------------------

STEP = """
import json, sys
import gymnasium
env = gymnasium.make("fleet_tools:FleetTools/Hammer-v0")
env.reset(seed=0)
env.step(env.action_space.sample() * 0)
files = {module.__file__ for name, module in sys.modules.items() if name.startswith("fleet_tools")}
print(json.dumps(sorted(files)))
"""
MOST_FILES, MOST_LINES = 75, 15_500
"""Budget of the environment; whoever adds to it says what it takes away."""
ROOMS = ("config", "envs", "perception", "robot", "sim")
FLOOR = ("assets", "storage", "task_configs", "utils")
OTHERS = re.compile(
    r"meta[-_ ]?world"
    r"|fleet_tools\.(baselines|dataset|evaluation|experts|leaderboard|policies|studio)\b",
    re.IGNORECASE,
)
"""Names of what uses the environment: other arenas, learning, studio, bridges, leaderboard."""


@pytest.fixture(scope="module", name="environment")
def _environment():
    return [Path(file) for file in run_python(STEP)]


def test_the_environment_can_be_read_in_two_days(environment):
    lines = sum(len(file.read_text().splitlines()) for file in environment)
    assert len(environment) <= MOST_FILES and lines <= MOST_LINES, (len(environment), lines)


def test_the_environment_imports_none_of_those_who_use_it(environment):
    parts = [file.relative_to(ROOT / "fleet_tools").parts for file in environment]
    assert {part[0] for part in parts if len(part) > 1} == {*ROOMS, *FLOOR}


def test_the_environment_names_none_of_those_who_use_it(environment):
    files = {
        *environment,
        *(f for room in ROOMS for f in (ROOT / "fleet_tools" / room).glob("*.py")),
    }
    named = {file.name: OTHERS.findall(file.read_text()) for file in files}
    assert {name: found for name, found in named.items() if found} == {}
