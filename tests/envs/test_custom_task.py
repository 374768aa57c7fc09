"""A user's own task: a YAML file and model folders, without Python."""

from pathlib import Path

import gymnasium
import pytest
import yaml

from fleet_tools.assets.__main__ import main as generate_models
from fleet_tools.config.tasks import task_path
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.rollouts.rollout import rollout


@pytest.fixture(scope="module", name="own")
def _own(tmp_path_factory) -> Path:
    """A folder with a task file, and with families of models that the package lacks."""
    folder = tmp_path_factory.mktemp("own")
    for family, location in [("hammer", "tools/thumper"), ("nail", "objects/peg")]:
        options = ["--count", "2", "--seed", "7", "--output", str(folder / "made")]
        assert generate_models(["--family", family, *options]) in (0, None)
        (made,) = (folder / "made").glob(f"*/{family}")
        (folder / location).parent.mkdir(exist_ok=True)
        made.rename(folder / location)
    task = yaml.safe_load(task_path("hammer").read_text())
    del task["held_out"]
    task |= {"name": "thumping", "tool_family": "thumper", "object_family": "peg", "assets": "."}
    (folder / "thumping.yaml").write_text(yaml.safe_dump(task))
    return folder


def test_the_expert_solves_it(own):
    env = gymnasium.make(CUSTOM_ID, task=str(own / "thumping.yaml"))
    for seed in range(2):
        episode = rollout(env, ExpertPolicy(env), seed=seed)
        assert episode.outcome == "success"
        assert (episode.scene.task, str(episode.scene.tool)[:6]) == ("thumping", "hammer")


def test_an_own_model_in_a_task_of_the_package(own):
    env = EnvSpec.of(
        task="hammer", tool=str(own / "tools" / "thumper" / "hammer_001")
    ).make_tool_use()
    assert rollout(env, ExpertPolicy(env), seed=0).outcome == "success"
