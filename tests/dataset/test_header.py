"""The header of a dataset: it describes every array, and its environment is made again from it."""

import gymnasium
from support.small_datasets import hammer_header

from fleet_tools.config.tasks import load_task
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.robot.arm import load_robot

HAMMER = load_task("hammer")


def test_header_describes_every_array_of_a_step(hammer: ToolUseEnv):
    header = hammer_header()
    space = hammer.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    assert {name: (array.shape, array.dtype) for name, array in header.observation.items()} == {
        name: (entry.shape, entry.dtype) for name, entry in space.items()
    }
    assert header.observation["tool_keypoints"].entries == hammer.task.keypoints.tool
    assert header.action.scale == tuple(hammer.action_scale)


def test_environment_is_made_again_from_the_task_as_it_was():
    header = hammer_header()
    text = header.task.text.replace("max_episode_steps: 60", "max_episode_steps: 7")
    changed = HAMMER.model_copy(update={"max_episode_steps": 7})
    task = header.task.model_copy(update={"text": text, "content_digest": changed.digest()})
    fill = load_robot().fill
    assert unwrap(header.model_copy(update={"task": task}).make_env()).task == fill(changed)
    assert unwrap(header.make_env()).task == fill(HAMMER)


def test_the_name_of_a_task_does_not_lead_to_a_file(tmp_path):
    header = hammer_header()
    text = header.task.text.replace("max_episode_steps: 60", "max_episode_steps: 7")
    changes = {"text": text, "content_digest": "0", "name": str(tmp_path / "own")}
    task = header.task.model_copy(update=changes)
    env = unwrap(header.model_copy(update={"task": task}).make_env())
    assert env.task.max_episode_steps == 7
    assert not list(tmp_path.iterdir())


def test_keyword_arguments_replace_those_of_the_header():
    header = hammer_header()
    assert header.make_env().render_mode is None
    assert header.make_env(render_mode="rgb_array").render_mode == "rgb_array"
