"""The page of a data set: every picture is what the episode stored, every count what is on disk."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import needs_gl
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.image import imread

from fleet_tools import collect
from fleet_tools.dataset import Dataset, DatasetWriter, Record, episode_file
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.reader import last_digest
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK
from fleet_tools.perception.third_person_view import project
from fleet_tools.rollouts.episode import StoredActions, rollout
from fleet_tools.utils.libraries import GL_LINE
from fleet_tools.visualization import contact_sheet
from fleet_tools.visualization.contact_sheet import BAD, draw_contact_sheet
from fleet_tools.visualization.filmstrip import HEIGHT, LEFT, TOP, WIDTH, take_strips


def collected(folder, *options):
    arguments = ["--tool", "hammer", "--output", str(folder), "--quiet", "--workers", "0", *options]
    assert collect.main(arguments) == 0
    return folder


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    return collected(tmp_path_factory.mktemp("data") / "state", "--episodes", "2")


@pytest.fixture(name="coloured", scope="module")
def _coloured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "rgbd"
    return collected(folder, "--episodes", "1", "--obs-mode", "rgbd")


@pytest.fixture(name="strips", scope="module")
def _strips(folder):
    return strips_of(Dataset(folder))


@pytest.fixture(name="env")
def _env(make):
    return make(render_mode="rgb_array")


def rewritten(folder, dataset, change):
    """Writes a data set of changed episodes."""
    header = dataset.header.model_copy(update={"keep_failures": True})
    with DatasetWriter(folder, header) as writer:
        for record in dataset.stored():
            episode = change(dataset.episode(record.attempt))
            came = {
                "outcome": episode.outcome,
                "success": episode.succeeded,
                "steps": len(episode),
                "state_digest": last_digest(episode),
                "error": episode.error,
            }
            writer.add(
                record.model_copy(update=came), episode_file.to_bytes(episode, record.attempt)
            )
    return Dataset(folder)


def strips_of(dataset):
    return list(take_strips(dataset, dataset.stored()))


def captions(figure):
    return [text.get_text() for text in figure.texts if text.get_text().startswith("attempt")]


def pictures(figure):
    """The axes that show pictures."""
    return [axes for axes in figure.axes if axes.get_xlabel().startswith("step ")]


def on_page(page, figure, axes):
    """The part of a saved page, (height, width, 3) uint8, that axes of its figure fill."""
    box = axes.get_position()
    height, width, _ = page.shape
    rows = [round(height * (1 - y)) for y in (box.y1, box.y0)]
    columns = [round(width * x) for x in (box.x0, box.x1)]
    return page[slice(*rows), slice(*columns)]


def read(path):
    return np.uint8(np.round(255 * imread(path)[..., :3]))


# --- Strips ---------------------------------------------------------------------------------


@needs_gl
def test_pictures_are_of_the_states_that_the_actions_lead_to(folder, strips, env, hammer):
    dataset = Dataset(folder)
    for strip in strips:
        episode = dataset.episode(strip.record.attempt)
        steps = [picture.step for picture in strip.pictures]
        assert (steps[0], steps[-1], len(steps)) == (0, len(episode), 5)
        assert strip.parted is None
        hammer.reset(options={"scene": episode.scene})
        states = [hammer.get_state()]
        for action in episode.actions:
            hammer.step(action)
            states.append(hammer.get_state())
        for picture in strip.pictures:
            env.set_state(states[picture.step])
            whole = env.render()
            np.testing.assert_array_equal(
                picture.pixels, whole[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
            )
            state = env.world_state()
            for located, p_W in (
                (picture.tool, state.p_W_tool),
                (picture.object, state.p_W_object),
            ):
                anywhere = project(np.array(list(p_W.values()))) - (LEFT, TOP)
                distances = np.linalg.norm(located[:, None] - anywhere, axis=2)
                assert distances.min(axis=1).max() < 0.01


@needs_gl
def test_points_of_a_cloud_are_where_keypoints_are(folder, strips, tmp_path):
    def as_cloud(episode):
        seen = episode.observations
        parts = [
            np.insert(seen[f"{part}_keypoints"], 3, mask, axis=2)
            for part, mask in (("tool", TOOL_MASK), ("object", OBJECT_MASK))
        ]
        absent = np.zeros((len(episode) + 1, 3, 4), np.float32)
        observations = {
            "end_effector_pose": seen["end_effector_pose"],
            "point_cloud": np.concatenate([*parts, absent], axis=1),
        }
        return replace(episode, observations=observations)

    clouds = strips_of(rewritten(tmp_path / "cloud", Dataset(folder), as_cloud))
    for one, other in zip(strips, clouds, strict=True):
        for mine, its in zip(one.pictures, other.pictures, strict=True):
            np.testing.assert_allclose(mine.tool, its.tool)
            np.testing.assert_allclose(mine.object, its.object)


@needs_gl
def test_short_and_failed_episodes_have_the_moments_that_there_are(folder, env, tmp_path):
    dataset = Dataset(folder)
    lengths = iter((0, 2))

    def broken_off(episode):
        actions = StoredActions(episode.actions[: next(lengths)])
        return rollout(env, actions, scene=episode.scene)

    failed = rewritten(tmp_path / "failed", dataset, broken_off)
    strips = strips_of(failed)
    steps = [[picture.step for picture in strip.pictures] for strip in strips]
    assert steps == [[0], [0, 1, 2]]
    figure = draw_contact_sheet(failed, strips)
    assert all(
        "FAILED: policy_error (FleetToolsError: All" in caption for caption in captions(figure)
    )
    for axes in pictures(figure):
        assert {to_hex(spine.get_edgecolor()) for spine in axes.spines.values()} == {BAD}


@needs_gl
def test_what_runs_otherwise_than_it_was_stored_is_said(folder, tmp_path):
    def altered(episode):
        actions = episode.actions.copy()
        actions[3, 2] = np.nextafter(actions[3, 2], np.float32(0))
        return replace(episode, actions=actions)

    dataset = rewritten(tmp_path / "altered", Dataset(folder), altered)
    strips = strips_of(dataset)
    assert [strip.parted for strip in strips] == [4, 4]
    for caption in captions(draw_contact_sheet(dataset, strips)):
        assert "NOT AS STORED from step 4 on" in caption


# --- The page -------------------------------------------------------------------------------


@needs_gl
def test_stored_colours_are_on_the_page_pixel_by_pixel(coloured, tmp_path):
    dataset, path = Dataset(coloured), tmp_path / "page.png"
    assert main(["info", str(coloured), "--plot", str(path), "--quiet"]) == 0
    page = read(path)
    figure = draw_contact_sheet(dataset, strips_of(dataset))
    seen = dataset.episode(0).observations
    shown = pictures(figure)
    assert len(shown) == 5
    for axes in shown:
        step = int(axes.get_xlabel().split()[1].rstrip(","))
        stored = np.concatenate([seen["overhead_rgb"][step], seen["wrist_rgb"][step]])
        np.testing.assert_array_equal(on_page(page, figure, axes), stored)


@needs_gl
def test_page_has_a_row_for_each_episode_that_is_drawn(folder, strips, tmp_path, capsys):
    heights = []
    for count in (1, 9):
        path = tmp_path / f"{count}.png"
        options = ["--plot", str(path), "--episodes", str(count), "--json", "--quiet"]
        assert main(["info", str(folder), *options]) == 0
        assert json.loads(capsys.readouterr().out)["picture"] == str(path)
        heights.append(len(read(path)))
    assert heights[1] > heights[0] + HEIGHT
    dataset = Dataset(folder)
    figure = draw_contact_sheet(dataset, strips)
    for caption, record in zip(captions(figure), dataset.stored(), strict=True):
        for part in (record.tool, record.object, str(record.seed), f"{record.steps} steps"):
            assert part in caption
        assert "success after" in caption


def test_plots_count_what_is_there(folder):
    dataset = Dataset(folder)
    figure = draw_contact_sheet(dataset, [])
    lengths, pairs, success = figure.axes
    assert sum(bar.get_height() for bar in lengths.patches) == len(dataset)
    covered = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in lengths.patches]
    for record in dataset.stored():
        assert any(low < record.steps < high for low, high in covered)
    assert np.sum(pairs.images[0].get_array()) == len(dataset)
    tools = sorted({record.tool for record in dataset.stored()})
    assert [label.get_text().split("\n")[0] for label in success.get_yticklabels()] == tools
    (points,) = [c for c in success.collections if isinstance(c, PathCollection)]
    np.testing.assert_array_equal(points.get_offsets()[:, 0], 1.0)


def test_records_that_name_no_models_are_counted_as_unknown(folder, tmp_path, capsys):
    stored = Dataset(folder)
    with DatasetWriter(tmp_path / "nameless", stored.header) as writer:
        for record in stored.stored():
            nameless = record.model_copy(update={"tool": None, "object": None})
            writer.add(
                nameless, episode_file.to_bytes(stored.episode(record.attempt), record.attempt)
            )
    dataset = Dataset(tmp_path / "nameless")
    *_, success = draw_contact_sheet(dataset, []).axes
    assert [label.get_text() for label in success.get_yticklabels()] == ["unknown\n2 of 2"]
    assert main(["info", str(dataset.folder)]) == 0
    assert "tools" not in capsys.readouterr().out


def test_without_gl_there_are_plots_and_a_word(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setattr("fleet_tools.visualization.filmstrip.require_driver", require_driver_anew)
    path = tmp_path / "page.png"
    assert main(["info", str(folder), "--plot", str(path), "--quiet"]) == 0
    assert GL_LINE in capsys.readouterr().err
    assert len(np.unique(read(path))) > 10


def require_driver_anew():
    """The driver may have been found before in this process."""
    from fleet_tools.perception.opengl import require_gl

    require_gl()


@pytest.mark.parametrize(
    "options, says",
    [
        (["--plot", "page.gif"], "ends with .png"),
        (["--plot", "nowhere/page.png"], "no folder"),
        (["--episodes", "3"], "give --plot"),
        (["--seed", "0"], "give --plot"),
    ],
)
def test_what_cannot_be_drawn_is_said_at_once(folder, options, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["info", str(folder), *options]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_data_set_without_episodes_has_no_page(folder, tmp_path, capsys):
    empty, page = tmp_path / "empty", tmp_path / "page.png"
    with DatasetWriter(empty, Dataset(folder).header) as writer:
        assert main(["info", str(empty), "--plot", str(page)]) == 2
        assert "holds no episodes yet" in capsys.readouterr().err
        failed = Record(attempt=0, seed=1, outcome="time_limit", success=False, steps=9, seconds=1)
        writer.add(failed)
    assert main(["info", str(empty), "--plot", str(page)]) == 2
    assert "--keep-failures" in capsys.readouterr().err
    assert not page.exists()
    assert main(["info", str(empty), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["episode_steps"], summary["tools"]) == (None, {})
    assert summary["mean_attempt_seconds"] == 1


def test_page_that_breaks_off_leaves_what_was_there(folder, tmp_path, monkeypatch):
    page = tmp_path / "page.png"
    page.write_bytes(b"the last one")
    monkeypatch.setattr(contact_sheet, "take_strips", lambda dataset, records: iter(()))

    def fail(axes, dataset):
        raise OSError("gone")

    monkeypatch.setattr(contact_sheet, "_draw_lengths", fail)
    assert main(["info", str(folder), "--plot", str(page), "--quiet"]) == 1
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(page, b"the last one")]


# --- The summary ----------------------------------------------------------------------------


def test_summary_says_what_the_files_say(folder, capsys):
    assert main(["info", str(folder), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    episodes = [episode_file.read(path) for path in sorted(folder.glob("episodes/*.hdf5"))]
    steps = [len(episode.actions) for episode in episodes]
    assert summary["episode_steps"]["mean"] == pytest.approx(np.mean(steps), abs=1e-3)
    assert summary["episode_steps"]["median"] == np.median(steps)
    assert summary["episode_steps"]["longest"] == max(steps)
    for kind, names in (
        ("tools", [episode.scene.tool for episode in episodes]),
        ("objects", [episode.scene.object for episode in episodes]),
    ):
        assert summary[kind] == {name: names.count(name) for name in names}
    assert main(["info", str(folder)]) == 0
    text = capsys.readouterr().out
    for name in [*summary["tools"], *summary["objects"]]:
        assert f"{name} {(summary['tools'] | summary['objects'])[name]}" in text
