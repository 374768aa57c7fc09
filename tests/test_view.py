"""The program that shows episodes, run for real; its files are read again by other means."""

import itertools
import json
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from conftest import ROOT, needs_gl
from meshcat_recordings import objects, tracks

from fleet_tools import collect, view
from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.perception.point_cloud import OBJECT_MASK
from fleet_tools.storage.atomic_files import whole
from fleet_tools.utils.libraries import install_line
from fleet_tools.visualization.annotations import annotate
from fleet_tools.visualization.drawing import MeshcatDrawing, draw_on_picture
from fleet_tools.visualization.video import write_video

STEP_S, FRAME_S = 1 / 6, 1 / 64


@pytest.fixture(name="recording", scope="module")
def _recording(tmp_path_factory):
    file = tmp_path_factory.mktemp("view") / "rollout.html"
    assert view.main(["--tool", "hammer", "--seed", "3", "--save", str(file), "--quiet"]) == 0
    return file.read_text()


@pytest.fixture(name="episode", scope="module")
def _episode():
    return collect_episode("hammer", 3)


def test_keypoints_ride_on_the_tool_whose_points_they_are(recording):
    moved = tracks(recording)
    (tool,) = {path for path, _ in moved if path.startswith("/drake/visualizer/tool/")}
    body = dict(moved[tool, "position"])
    keypoints = [path for path, _ in moved if "/keypoints/tool/" in path]
    assert len(set(keypoints)) >= 3
    for path in set(keypoints):
        way = moved[path, "position"]
        distances = [np.linalg.norm(np.subtract(p, body[time])) for time, p in way]
        np.testing.assert_allclose(distances, distances[0], atol=1e-6)
        assert np.linalg.norm(np.subtract(way[0][1], way[-1][1])) > 0.1


def test_keypoints_are_where_the_episode_had_them(recording, episode):
    moved = tracks(recording)
    X_WE = episode.observations["end_effector_pose"]
    seen = episode.observations["tool_keypoints"]  # in E; the first is the head
    way = moved["/drake/annotations/keypoints/tool/head", "position"]
    assert len(way) == len(episode) + 1
    for k, (time, p_W) in enumerate(way):
        assert 0 <= k * STEP_S - time < FRAME_S
        np.testing.assert_allclose(p_W, X_WE[k, :, :3] @ seen[k, 0] + X_WE[k, :, 3], atol=1e-5)


def test_slider_shows_the_way_as_it_is_travelled(recording, episode):
    moved = tracks(recording)
    shown = sorted(
        max(time for time, visible in track if visible)
        for (path, what), track in moved.items()
        if "/travelled/" in path and what == "visible"
    )
    assert len(shown) == len(episode)
    np.testing.assert_allclose(shown, np.arange(1, len(episode) + 1) * STEP_S, atol=FRAME_S)
    plans = {path for path in objects(recording) if path.endswith("/way")}
    assert len(plans) == episode.info["plans"]


def test_only_the_cloud_of_the_moment_is_shown(make, tmp_path):
    env = make("FleetTools/Hammer-v0", render_mode="human")
    observation, _ = env.reset(seed=0)
    env.meshcat.DeleteRecording()
    env.meshcat.StartRecording(64.0)
    drawing = MeshcatDrawing(env.meshcat)
    cloud = np.float32([[0, 0, 0.1, 1], [0, 0, 0.2, 0]])
    for k in range(3):
        drawing.draw(annotate(env, None, observation | {"point_cloud": cloud}), float(k))
    env.meshcat.StopRecording()
    env.meshcat.PublishRecording()
    moved = tracks(env.meshcat.StaticHtml())
    switches = [
        dict(track) for (path, _), track in sorted(moved.items()) if "/annotations/cloud/" in path
    ]
    assert switches == [
        {0.0: True, 1.0: False},
        {0.0: False, 1.0: True, 2.0: False},
        {0.0: False, 2.0: True},
    ]


def test_cloud_of_the_end_effector_is_drawn_in_the_world(hammer):
    observation, _ = hammer.reset(seed=0)
    state = hammer.world_state()
    p_E = np.array(list(state.in_end_effector(state.p_W_object).values()))
    seen = np.column_stack([p_E, np.full(len(p_E), OBJECT_MASK)])
    cloud = np.float32(np.vstack([seen, np.zeros((3, 4))]))  # the rest is out of view
    annotations = annotate(hammer, None, observation | {"point_cloud": cloud})
    np.testing.assert_allclose(annotations.cloud, list(state.p_W_object.values()), atol=1e-6)
    assert annotate(hammer, None, observation).cloud is None


def test_stored_episode_is_shown_again(tmp_path, capsys):
    folder, file = tmp_path / "data", tmp_path / "again.html"
    stored = ["--tool", "hammer", "--episodes", "1", "--output", str(folder), "--quiet"]
    stored += ["--workers", "0"]
    assert collect.main(stored) == 0
    assert view.main(["--dataset", str(folder), "--save", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == ["success"]
    assert view.main(["--dataset", str(folder), "--attempt", "7", "--save", str(file)]) == 2
    assert "from attempt 7" in capsys.readouterr().err


def test_live_view_plays_until_ctrl_c():
    command = [sys.executable, "-m", "fleet_tools.view", "--tool", "hammer"]
    program = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    played = program.stdout.readline()
    program.send_signal(signal.SIGINT)
    assert program.wait(timeout=60) == 0
    program.stdout.close()
    assert played.startswith("hammer, seed 0: expert: success")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--tool", "hammer", "--save", "rollout.gif"], "makes .html or .mp4"),
        (["--tool", "hammer", "--save", "nowhere/rollout.html"], "no folder"),
        (["--tool", "hammer", "--save", "r.html", "--episodes", "2"], "holds one episode"),
        (["--tool", "hamer"], "did you mean 'hammer'"),
        (["--dataset", "nowhere"], "not a data set"),
    ],
)
def test_what_cannot_be_shown_is_said_at_once(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert view.main(arguments) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["av", "PIL"])
def test_video_without_its_libraries_says_what_installs_them(module, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    assert view.main(["--tool", "hammer", "--save", str(tmp_path / "rollout.mp4")]) == 2
    assert install_line("video") in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@needs_gl
def test_video_shows_every_step(tmp_path, episode):
    av = pytest.importorskip("av")
    pytest.importorskip("PIL")
    file = tmp_path / "rollout.mp4"
    assert view.main(["--tool", "hammer", "--seed", "3", "--save", str(file), "--quiet"]) == 0
    with av.open(str(file)) as video:
        stream = video.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(stream)]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 6
    assert len(frames) == len(episode) + 1
    for one, next in itertools.pairwise(frames):
        assert np.abs(np.int16(one) - next).max() > 50


def test_colours_and_order_survive_the_video(tmp_path):
    av = pytest.importorskip("av")
    colors = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    file = tmp_path / "colors.mp4"
    write_video(file, [np.full((32, 48, 3), color, np.uint8) for color in colors], 6)
    with av.open(str(file)) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    means = [frame.mean(axis=(0, 1)) for frame in frames]
    np.testing.assert_allclose(means, colors, atol=12)


def test_video_that_breaks_off_leaves_what_was_there(tmp_path):
    pytest.importorskip("av")
    file = tmp_path / "rollout.mp4"
    file.write_bytes(b"the last one")

    def pictures():
        yield np.zeros((32, 48, 3), np.uint8)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_video(file, pictures(), 6)
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(file, b"the last one")]


def test_file_appears_when_it_is_whole(tmp_path):
    file = tmp_path / "file.txt"
    with whole(file) as aside:
        aside.write_text("all of it")
        assert not file.exists()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["all of it"]


@needs_gl
def test_drawing_changes_no_picture_but_its_own(make):
    pytest.importorskip("PIL")
    env = make(render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    picture = env.render()
    before = picture.copy()
    drawn = draw_on_picture(picture, annotate(env, None, observation), np.zeros((0, 3)), "seed 0")
    np.testing.assert_array_equal(picture, before)
    changed = (drawn != before).any(axis=2)
    assert 0.0 < changed.mean() < 0.02


@needs_gl
def test_gymnasium_records_videos(tmp_path):
    pytest.importorskip("moviepy")
    av = pytest.importorskip("av")
    env = gymnasium.make("FleetTools/Hammer-v0", render_mode="rgb_array")
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "videos"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(6, np.float32))
    env.close()
    (file,) = (tmp_path / "videos").glob("*.mp4")
    with av.open(str(file)) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
        assert video.streams.video[0].average_rate == env.metadata["render_fps"]
    assert len(frames) == 4
    assert frames[0].shape == (480, 640, 3)
