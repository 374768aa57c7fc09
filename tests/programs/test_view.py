"""The program that shows episodes, run for real; its files are read again by other means."""

import base64
import itertools
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RigidTransform
from support.chromium import open_page
from support.collected import write_quick_task
from support.meshcat_recordings import Keyframes, messages, object_paths, tracks, unpacked
from support.processes import ROOT
from support.rendering import needs_gl
from support.small_datasets import an_episode, hammer_scene

from fleet_tools import collect, view
from fleet_tools.config.file_access import texture_file
from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.perception.rendering import within_material
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.scene import NextObject, Scene
from fleet_tools.sim.world import TABLE_COLOR
from fleet_tools.studio.pictures.recording import PlannedEpisode, _card

STEP_S, FRAME_S = 1 / 6, 1 / 64


@pytest.fixture(name="quick_task", scope="module")
def _quick_task(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a task that every policy solves in two steps."""
    return str(write_quick_task(tmp_path_factory.mktemp("task")))


@pytest.fixture(name="recording", scope="module")
def _recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Page with a recording of the expert."""
    file = tmp_path_factory.mktemp("view") / "rollout.html"
    assert view.main(["--tool", "hammer", "--seed", "3", "--output", str(file), "--quiet"]) == 0
    return file.read_text()


@pytest.fixture(name="episode", scope="module")
def _episode() -> Episode:
    """The same episode, made otherwise."""
    return collect_episode("hammer", 3)


def test_keypoints_move_with_the_tool(recording):
    moved = tracks(recording)
    (tool,) = {path for path, _ in moved if path.startswith("/drake/visualizer/tool/")}
    body = dict(moved[tool, "position"])
    keypoints = {path for path, _ in moved if "/keypoints/tool/" in path}
    assert len(keypoints) >= 3
    for path in keypoints:
        positions = moved[path, "position"]
        distances = [np.linalg.norm(np.subtract(p, body[time])) for time, p in positions]
        np.testing.assert_allclose(distances, distances[0], atol=1e-6)
        assert np.linalg.norm(np.subtract(positions[0][1], positions[-1][1])) > 0.1


def test_points_of_the_tool_move_with_it_in_every_frame(recording):
    """Each frame of a cloud has the motion of the tool since the cloud was observed."""
    moved = tracks(recording)
    (tool,) = {path for path, _ in moved if path.startswith("/drake/visualizer/tool/")}
    X_WT = poses(moved, tool)
    paths = {path for path, _ in moved if "/annotations/cloud/tool/" in path}
    clouds = sorted((poses(moved, path) for path in paths), key=min)
    for X_cloud, follower in itertools.pairwise(clouds):
        visible = {time: X for time, X in X_cloud.items() if time < min(follower)}
        assert len(visible) >= 10  # 64 frames a second, 6 observations
        first = min(visible)
        for time, X in visible.items():
            assert X.IsNearlyEqualTo(X_WT[time] @ X_WT[first].inverse(), 1e-6)


def test_table_keeps_its_texture_and_tint(recording, episode):
    (table,) = (
        message["object"]["object"]
        for message in messages(recording)
        if message["type"] == "set_object" and message["path"].endswith("/table_top")
    )
    assert isinstance(episode.scene, Scene)
    file = texture_file(episode.scene.table_texture)
    assert file is not None
    stored = base64.b64decode(table["resources"][file.name].partition("base64,")[2])
    assert stored == file.read_bytes()
    (color,) = re.findall(r"Kd (\S+) (\S+) (\S+)", table["mtl_library"])
    expected = np.minimum(
        np.multiply(TABLE_COLOR[:3], within_material(episode.scene.table_tint)), 1.0
    )
    np.testing.assert_allclose([float(c) for c in color], expected, atol=1e-6)


def poses(moved: dict[tuple[str, str], Keyframes], path: str) -> dict[float, RigidTransform]:
    """Returns the poses of an object of a recording by their times."""
    rotations = dict(moved[path, "quaternion"])
    return {
        time: RigidTransform(quaternion(rotations[time]), p_W)
        for time, p_W in moved[path, "position"]
    }


def quaternion(xyzw: list[float]) -> Quaternion:
    x, y, z, w = np.array(xyzw) / np.linalg.norm(xyzw)
    return Quaternion(w, x, y, z)


def test_keypoints_are_where_the_episode_had_them(recording, episode):
    X_WE = episode.observations["end_effector_pose"]
    p_EHead = episode.observations["tool_keypoints"][:, 0]
    positions = tracks(recording)["/drake/annotations/keypoints/tool/head", "position"]
    assert len(positions) == len(episode) + 1
    for k, (time, p_W) in enumerate(positions):
        assert 0 <= k * STEP_S - time < FRAME_S
        np.testing.assert_allclose(p_W, X_WE[k, :, :3] @ p_EHead[k] + X_WE[k, :, 3], atol=1e-5)


def test_the_page_says_task_policy_and_outcome_and_explains_every_colour(recording, episode):
    text, tags = read_html(unpacked(recording).partition("</style>")[2])
    assert tags.count("details") == 1
    assert isinstance(episode.scene, Scene)
    for said in (
        "hammer, seed 3: expert",
        f"Tool: {episode.scene.tool}. Object: {episode.scene.object}.",
        f"Outcome: success, after {len(episode)} steps.",
        "tool: keypoints and points that cameras see",
        "object: keypoints and points that cameras see",
        "tool: planned path",
        "tool: path so far",
    ):
        assert said in text


@given(names=st.lists(st.text(st.sampled_from("<>&\"'/! aé"), max_size=12), min_size=4, max_size=4))
def test_no_name_of_anybody_is_markup(names):
    """Whoever wrote a task, a model or a policy, the page shows their words and runs none."""
    title, tool, object, error = names
    first = hammer_scene().model_copy(update={"tool": tool, "object": object})
    other = NextObject.model_construct(object=error)
    scene = first.model_copy(update={"next_objects": (other,)})
    done = replace(an_episode(np.random.default_rng(0), 2), scene=scene, error=error)
    text, tags = read_html(
        _card(PlannedEpisode(title, StoredActions(done.actions), 0), done, {title: (0, 0, 1)})
    )
    breaks = ["br"] * (2 if error else 1)
    expected = ["meta", "style", "details", "summary", "p", *breaks, "ul", "li", "i", "script"]
    assert tags == expected
    for said in (title, f"Tool: {tool}. Objects: {object}, {error}.", error):
        assert said in text


def read_html(page: str) -> tuple[str, list[str]]:
    """Returns the text of a page, and its tags, as a browser reads them."""
    text: list[str] = []
    tags: list[str] = []

    class Reader(HTMLParser):
        """Keeps what it reads."""

        def handle_data(self, data: str) -> None:
            text.append(data)

        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    reader = Reader()
    reader.feed(page)
    reader.close()
    return "".join(text), tags


def test_slider_shows_the_path_as_it_is_travelled(recording, episode):
    shown = sorted(
        max(time for time, visible in track if visible)
        for (path, name), track in tracks(recording).items()
        if "/travelled/" in path and name == "visible"
    )
    assert len(shown) == len(episode)
    np.testing.assert_allclose(shown, np.arange(1, len(episode) + 1) * STEP_S, atol=FRAME_S)
    plans = {path for path in object_paths(recording) if path.endswith("/way")}
    assert len(plans) == episode.info["plans"]


@pytest.mark.slow
def test_a_browser_unpacks_a_recording_and_plays_it(recording, episode, tmp_path):
    (tmp_path / "rollout.html").write_text(recording)
    assert len(recording) < 2_500_000  # 4 MB without packing
    with open_page((tmp_path / "rollout.html").as_uri(), width=400, height=250) as page:
        page.wait_for_function(
            "typeof viewer === 'object' && viewer.animator.duration > 0", timeout=120_000
        )
        duration = page.evaluate("viewer.animator.duration")
        assert duration == pytest.approx(len(episode) * STEP_S, abs=2 * FRAME_S)
        (tool,) = {path for path, _ in tracks(recording) if "/visualizer/tool/" in path}
        body = f"viewer.scene_tree.find({tool.split('/')[1:]}).object"
        page.evaluate("(viewer.animator.pause(), viewer.animator.seek(0))")
        start = page.evaluate(f"{body}.position.toArray()")
        np.testing.assert_allclose(start, tracks(recording)[tool, "position"][0][1], atol=1e-6)


def test_stored_episode_is_shown_again(quick_task, tmp_path, capsys):
    folder, file = tmp_path / "data", tmp_path / "again.html"
    collected = ["--task", quick_task, "--policy", "zero", "--episodes", "1", "--workers", "0"]
    assert collect.main([*collected, "--output", str(folder), "--quiet"]) == 0
    assert view.main(["--dataset", str(folder), "--output", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"outcomes": ["success"], "output": str(file)}
    assert tracks(file.read_text())
    assert view.main(["--dataset", str(folder), "--attempt", "7", "--output", str(file)]) == 2
    assert "from attempt 7" in capsys.readouterr().err


@pytest.mark.slow  # of Ctrl-C: tests/utils/test_cli.py; of what is shown: above
def test_live_view_plays_until_ctrl_c(quick_task):
    command = [sys.executable, "-m", "fleet_tools.view", "--task", quick_task, "--policy", "zero"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        assert program.stdout is not None
        played = program.stdout.readline()
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=60) == 0
    assert played.startswith("quick, seed 0: zero: success")


@needs_gl
@pytest.mark.parametrize(
    ("options", "fps"),
    [pytest.param([], 30, marks=pytest.mark.slow), (["--fps", "6"], 6)],
)
def test_video_shows_every_frame(options, fps, quick_task, tmp_path):
    av = pytest.importorskip("av")
    file = tmp_path / "rollout.mp4"
    options += ["--task", quick_task, "--policy", "random", "--seed", "3", "--episodes", "2"]
    options += ["--size", "320x240"]
    assert view.main([*options, "--output", str(file), "--quiet"]) == 0
    episodes = [collect_episode(quick_task, seed, policy="random") for seed in (3, 4)]
    with av.open(str(file)) as video:
        stream = video.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(stream)]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (stream.average_rate, stream.width, stream.height) == (fps, 320, 240)
    assert len(frames) == sum(len(episode) * fps // 6 + 1 for episode in episodes)
    for one, next in itertools.pairwise(frames[:: fps // 6]):
        assert np.abs(one.astype(np.int16) - next).max() > 50
