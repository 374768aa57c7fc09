import gymnasium
import pytest
from conftest import run_python
from gymnasium.envs.registration import EnvSpec

from fleet_tools.registration import register_environments
from fleet_tools.tasks import load_task, task_names

IDS = sorted(name for name in gymnasium.registry if name.startswith("FleetTools/"))


def test_every_task_has_an_environment():
    assert sorted(f"FleetTools/{name.title()}-v0" for name in task_names()) == IDS


@pytest.mark.parametrize("environment_id", IDS)
def test_the_spec_has_the_task_files_time_limit(environment_id):
    spec = gymnasium.spec(environment_id)
    assert spec.max_episode_steps == load_task(spec.kwargs["task"]).max_episode_steps


@pytest.mark.parametrize("environment_id", IDS)
def test_the_spec_of_a_made_environment_goes_through_json(environment_id):
    keywords = {"randomization": {"object_pose": False}, "reward": "dense", "obs_mode": "state"}
    env = gymnasium.make(environment_id, max_episode_steps=9, **keywords)
    spec = EnvSpec.from_json(env.spec.to_json())
    again = gymnasium.make(spec)
    assert again.spec.max_episode_steps == 9
    assert again.spec.kwargs.items() >= keywords.items()
    first, second = env.reset(seed=1)[0], again.reset(seed=1)[0]
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)


def test_registering_again_changes_nothing():
    before = dict(gymnasium.registry)
    register_environments()
    assert gymnasium.registry == before


def test_importing_the_package_is_light_and_registers():
    code = """
import json, sys
import fleet_tools, gymnasium
heavy = {"pydrake", "torch", "ray", "open3d", "trimesh", "h5py", "pydantic", "scipy"}
names = [name for name in gymnasium.registry if name.startswith("FleetTools/")]
print(json.dumps([sorted(heavy & set(sys.modules)), sorted(names)]))
"""
    assert run_python(code) == [[], IDS]


@pytest.mark.parametrize(
    "lines",
    [
        "import fleet_tools\nenv = gymnasium.make('FleetTools/Hammer-v0')",
        "env = gymnasium.make('fleet_tools:FleetTools/Hammer-v0')",
    ],
)
def test_the_environment_is_made_in_both_ways(lines):
    code = f"""
import json, sys, gymnasium
{lines}
observation, info = env.reset(seed=0)
assert env.action_space.shape == (6,)
print(json.dumps([env.spec.max_episode_steps, info["outcome"], "torch" in sys.modules]))
"""
    assert run_python(code) == [load_task("hammer").max_episode_steps, "running", False]
