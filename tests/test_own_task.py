"""A user's own task: a YAML file and model folders, no Python."""

import subprocess
import sys

import gymnasium
import pytest
import yaml
from conftest import ROOT

import fleet_tools  # noqa: F401
from fleet_tools.config.tasks import task_path
from fleet_tools.dataset.header import describe
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import rollout


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A task file in a folder of its own, with families that the package has not got."""
    folder = tmp_path_factory.mktemp("own")
    for family, place in [("hammer", "tools/thumper"), ("nail", "objects/peg")]:
        command = [sys.executable, "-m", "fleet_tools.assets", "--family", family]
        options = ["--count", "2", "--seed", "7", "--output", str(folder / "made")]
        subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True)
        (made,) = (folder / "made").glob(f"*/{family}")
        (folder / place).parent.mkdir(exist_ok=True)
        made.rename(folder / place)
    task = yaml.safe_load(task_path("hammer").read_text())
    del task["held_out"]
    task |= {"name": "thumping", "tool_family": "thumper", "object_family": "peg", "assets": "."}
    (folder / "thumping.yaml").write_text(yaml.safe_dump(task))
    return folder


def test_its_expert_solves_it(own):
    env = gymnasium.make("FleetTools/Custom-v0", task=str(own / "thumping.yaml"))
    for seed in range(2):
        episode = rollout(env, ExpertPolicy(env), seed=seed)
        assert episode.succeeded
        assert (episode.scene.task, episode.scene.tool[:6]) == ("thumping", "hammer")


def test_it_is_collected_and_replayed(own):
    run = {"cwd": ROOT, "capture_output": True, "text": True}
    output = str(own / "data")
    collect = [sys.executable, "-m", "fleet_tools.collect", "--task", str(own / "thumping.yaml")]
    collected = subprocess.run([*collect, "--episodes", "2", "--output", output], **run)
    assert collected.returncode == 0, collected.stderr
    replayed = subprocess.run(
        [sys.executable, "-m", "fleet_tools.replay", output, "--workers", "0"], **run
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_its_data_set_says_how_to_make_its_environment(own):
    task = str(own / "thumping.yaml")
    header = describe(
        make_environment(task=task), task, policy="expert", seed=0, keep_failures=False
    )
    env = gymnasium.make(header.environment.id, **header.environment.kwargs)
    assert env.unwrapped.task.name == "thumping"


def test_one_foreign_model_in_a_task_of_the_package(own):
    env = gymnasium.make("FleetTools/Hammer-v0", tool=str(own / "tools" / "thumper" / "hammer_001"))
    assert rollout(env, ExpertPolicy(env), seed=0).succeeded
