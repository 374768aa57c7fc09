"""Episodes filmed and recorded are the same as others; their frames, videos and callbacks."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.meshcat_recordings import object_paths
from support.rendering import needs_gl

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.studio.pictures.filming import Shot, film, write_video
from fleet_tools.studio.pictures.recording import (
    MeshcatRecorder,
    PlannedEpisode,
    render_frame,
    run_observed,
)

SMALL = (64, 48)
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (4, 6)).astype(np.float32)


@pytest.fixture(name="env", scope="module")
def _env(make: Callable[..., ToolUseEnv]) -> ToolUseEnv:
    return make(render_mode="rgb_array")


def filmed(env: ToolUseEnv, **shot: Any) -> tuple[Episode, list[np.ndarray]]:
    frames: list[np.ndarray] = []
    planned = PlannedEpisode("title", StoredActions(ACTIONS), seed=3)
    return film(env, planned, Shot(**{"size": SMALL, **shot}), frames.append), frames


@needs_gl
@pytest.mark.parametrize(
    "fps", [1, 30, *(pytest.param(k, marks=pytest.mark.slow) for k in (6, 250))]
)
def test_an_episode_is_the_same_at_any_frame_rate(fps, env, make):
    alone = rollout(make(), StoredActions(ACTIONS), seed=3)
    episode, frames = filmed(env, fps=fps, size=(16, 16))
    np.testing.assert_array_equal(episode.digests, alone.digests)
    assert len(frames) == len(ACTIONS) * fps // 6 + 1


@needs_gl
def test_plain_frames_are_the_pictures_at_their_times(env):
    episode, frames = filmed(env, fps=30)
    _, at_steps = filmed(env, fps=6)
    env.reset(seed=3)
    for k in range(len(ACTIONS) + 1):
        if k:
            env.step(ACTIONS[k - 1])
        picture = env.image(env.find_view(size=SMALL))
        np.testing.assert_array_equal(frames[5 * k], picture)
        np.testing.assert_array_equal(at_steps[k], picture)
    between = [frames[k] for k in range(len(frames)) if k % 5]
    for one, next in itertools.pairwise(between):
        assert (one != next).any()
    assert len(episode) == len(ACTIONS)


@needs_gl
def test_every_camera_of_the_task_films(env):
    pictures = [filmed(env, fps=1, camera=name)[1][0] for name in ("third", *env.task.cameras)]
    for k, one in enumerate(pictures):
        assert one.shape == (SMALL[1], SMALL[0], 3)
        assert all((one != other).any() for other in pictures[:k])
    _, moving = filmed(env, camera="wrist")
    assert (moving[0] != moving[-1]).any()
    with pytest.raises(UnknownNameError, match="Did you mean 'wrist'"):
        filmed(env, camera="wist")


@needs_gl
def test_a_watcher_sees_the_updates_of_the_physics_and_leaves_when_the_block_ends(env):
    env.reset(seed=0)
    times: list[float] = []
    with pytest.raises(ZeroDivisionError), env.watched(lambda _: times.append(1 / 0)):
        env.step(ACTIONS[0])
    env.reset(seed=0)
    with env.watched(lambda simulation: times.append(simulation.time)):
        env.step(ACTIONS[0])
    env.step(ACTIONS[1])
    np.testing.assert_allclose(np.diff(times)[:-1], 0.004, atol=1e-9)
    assert times[-1] == 1 / 6


# --- Videos ---------------------------------------------------------------------------------


def pyav() -> Any:
    return pytest.importorskip("av")


def frames_of(path: Path) -> list[np.ndarray]:
    with pyav().open(str(path)) as video:
        return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]


def test_colours_and_order_survive_the_video(tmp_path):
    colors = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    file = tmp_path / "colors.mp4"
    write_video(file, [np.full((32, 48, 3), color, np.uint8) for color in colors], 6)
    means = [frame.mean(axis=(0, 1)) for frame in frames_of(file)]
    np.testing.assert_allclose(means, colors, atol=12)


def test_a_video_that_cannot_be_finished_leaves_the_last_one(tmp_path):
    file = tmp_path / "rollout.mp4"
    file.write_bytes(b"the last one")

    def frames() -> Iterator[np.ndarray]:
        yield np.zeros((32, 48, 3), np.uint8)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_video(file, frames(), 6)
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(file, b"the last one")]


@needs_gl
def test_gymnasium_records_videos(tmp_path):
    pytest.importorskip("moviepy")
    env = gymnasium.make("FleetTools/Hammer-v0", render_mode="rgb_array")
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "videos"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(6, np.float32))
    env.close()
    (file,) = (tmp_path / "videos").glob("*.mp4")
    frames = frames_of(file)
    assert len(frames) == 4
    assert frames[0].shape == (480, 640, 3)
    with pyav().open(str(file)) as video:
        assert video.streams.video[0].average_rate == env.metadata["render_fps"]


def test_every_observation_is_received_once_the_policy_has_acted_on_it(hammer):
    actions = np.zeros((3, 6), np.float32)
    acted, received = [], []

    class Counted(StoredActions):
        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            action = super().act(observation)
            acted.append(action)
            return action

    def receive(observation: dict[str, np.ndarray]) -> None:
        received.append((len(acted), observation))

    episode = run_observed(hammer, PlannedEpisode("", Counted(actions), seed=0), receive)
    assert len(episode) == len(actions)
    assert [count for count, _ in received] == [1, 2, 3, 3]
    for k, (_, observation) in enumerate(received):
        for name, rows in episode.observations.items():
            np.testing.assert_array_equal(observation[name], rows[k])


@pytest.mark.parametrize("annotated", [True, False])
def test_an_episode_is_the_same_when_it_is_recorded(annotated, make):
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 6)).astype(np.float32)
    alone = rollout(make(), StoredActions(actions), seed=3)
    env = make(render_mode="human")
    recorder = MeshcatRecorder(env, annotated=annotated)
    episode = recorder.record(PlannedEpisode("", StoredActions(actions), seed=3))
    np.testing.assert_array_equal(episode.digests, alone.digests)
    drawn = {path for path in object_paths(recorder.html()) if "/annotations/" in path}
    assert bool(drawn) == annotated


def test_another_render_mode_is_refused(hammer):
    hammer.reset(seed=0)
    with pytest.raises(ConfigError, match='render_mode="human"; given: None'):
        MeshcatRecorder(hammer)
    for picture in (lambda: hammer.image(hammer.find_view()), lambda: render_frame(hammer)):
        with pytest.raises(ConfigError, match='render_mode="rgb_array"; given: None'):
            picture()
