"""A task at another control rate: one line of YAML, in all that is made of it."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from fleet_tools import collect, replay
from fleet_tools.config.tasks import load_task
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.envs.array_spec import describe_action
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError
from fleet_tools.studio.pictures.filming import write_video


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a dataset of the expert in the hammer's task at 10 Hz."""
    folder = tmp_path_factory.mktemp("fast")
    task = folder / "fast.yaml"
    task.write_text("extends: hammer\nname: fast\ncontrol_rate_hz: 10\n")
    options = ["--task", str(task), "--episodes", "1", "--workers", "0", "--quiet"]
    assert collect.main([*options, "--output", str(folder / "data")]) == 0
    task.unlink()  # the dataset needs it no longer
    return folder / "data"


def test_the_expert_solves_it_and_its_dataset_is_replayed_bit_for_bit(folder, capsys):
    dataset = Dataset(folder)
    assert [record.outcome for record in dataset.manifest()] == ["success"]
    assert dataset.header.control_rate_hz == 10
    assert replay.main([str(folder), "--json", "--workers", "0", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["identical_share"] == 1


def test_an_environment_has_the_rate_of_its_task(folder):
    stored, usual = unwrap(Dataset(folder).header.make_env()), load_task("hammer")
    assert stored.metadata["render_fps"] == 10 and "render_fps" not in type(stored).metadata
    task = stored.task
    assert task.max_episode_steps == 100 and usual.max_episode_steps == 60
    np.testing.assert_allclose(stored.action_scale[[0, 3]], [0.03, np.deg2rad(9)], rtol=1e-15)
    stored.reset(seed=0)
    stored.step(np.zeros(6, np.float32))
    assert stored.world_state().time == 0.1


def test_policies_know_the_rate_of_their_demonstrations(folder, hammer):
    pytest.importorskip("torch")
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.config import policy_config
    from fleet_tools.baselines.policies.layout import LayoutError

    header = Dataset(folder).header
    blueprint = Blueprint.of(policy_config("mlp"), header.observation, header.action)
    assert blueprint.control_rate_hz == 10
    with pytest.raises(LayoutError, match=r"the rate_hz is 6\.0, not 10\.0"):
        blueprint.require_environment(hammer)
    unknown = describe_action(hammer).model_copy(update={"rate_hz": None})
    with pytest.raises(ConfigError, match="rate_hz of actions is missing"):
        Blueprint.of(policy_config("mlp"), header.observation, unknown)


@pytest.mark.parametrize("rate_hz", [6, 10.0, 7.5])
def test_videos_have_the_rate(tmp_path, rate_hz):
    av = pytest.importorskip("av")
    file = tmp_path / "video.mp4"
    write_video(file, [np.zeros((32, 32, 3), np.uint8)] * 4, rate_hz)
    with av.open(str(file)) as video:
        assert float(video.streams.video[0].average_rate) == rate_hz


def test_clips_of_tasks_with_different_rates_keep_time():
    av = pytest.importorskip("av")
    pytest.importorskip("PIL")
    from fleet_tools.studio.pictures.clips import CLIP_HEIGHT, CLIP_WIDTH, EpisodeView, make_clip

    views = [
        EpisodeView(
            [np.full((CLIP_HEIGHT, CLIP_WIDTH, 3), k, np.uint8) for k in range(count)], rate
        )
        for count, rate in ((60, 6.0), (20, 10.0))
    ]
    assert [views[0].at(k, 10.0)[0, 0, 0] for k in (0, 1, 2, 5, 99, 300)] == [0, 0, 1, 3, 59, 59]
    assert [views[1].at(k, 10.0)[0, 0, 0] for k in (0, 1, 19, 20)] == [0, 1, 19, 19]
    clip = make_clip(views, {})
    with av.open(io.BytesIO(clip.video)) as video:
        assert video.streams.video[0].average_rate == 10
        assert sum(1 for _ in video.decode(video=0)) == 110  # 10 s and the pause
