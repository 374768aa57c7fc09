"""Contact sheets: every frame is what the episode stored, every count what is on the disk."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from support.collected import write_quick_task
from support.rendering import needs_gl
from support.small_datasets import Layout, a_header

from fleet_tools import collect
from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.__main__ import main
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.perception.display import project
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.studio.pictures import contact_sheet
from fleet_tools.studio.pictures.contact_sheet import FAILURE_COLOR, draw_contact_sheet
from fleet_tools.studio.pictures.filmstrip import (
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    Filmstrip,
    make_filmstrips,
)
from fleet_tools.utils.libraries import GL_COMMAND


@dataclass(frozen=True)
class Variants:
    """A dataset with variants of one episode, and their filmstrips by name."""

    dataset: Dataset
    strips: dict[str, Filmstrip]


def collected(folder: Path, *options: str) -> Path:
    arguments = ["--output", str(folder), "--episodes", "2", "--quiet", "--workers", "0"]
    assert collect.main([*arguments, *options]) == 0
    return folder


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of six steps, each of other motions."""
    folder = tmp_path_factory.mktemp("data")
    task = str(write_quick_task(folder, 1.0))
    return collected(folder / "state", "--task", task, "--policy", "random")


@pytest.fixture(name="folder_with_images", scope="module")
def _folder_with_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of two steps, with colour images of two cameras."""
    folder = tmp_path_factory.mktemp("data")
    options = ["--task", str(write_quick_task(folder)), "--policy", "zero", "--obs-mode", "rgbd"]
    kwargs = ['channels=["rgb"]', "camera_size=[200,150]"]
    return collected(folder / "rgbd", *options, "--env", *kwargs)


@pytest.fixture(name="env", scope="module")
def _env(folder: Path) -> ToolUseEnv:
    return unwrap(Dataset(folder).header.make_env(render_mode="rgb_array"))


@pytest.fixture(name="variants", scope="module")
def _variants(folder: Path, env: ToolUseEnv, tmp_path_factory: pytest.TempPathFactory) -> Variants:
    stored = Dataset(folder)
    record, episode = stored.stored()[0], stored.episode(0)
    episodes = {
        "as stored": episode,
        "with a cloud": with_cloud(episode),
        "without steps": cut(episode, 0, env),
        "with two steps": cut(episode, 2, env),
        "altered": altered(episode),
    }
    header = stored.header.model_copy(update={"keep_failures": True})
    arrays = episodes["with a cloud"].observations
    layout: Layout = {name: (rows.shape[1:], rows.dtype.name) for name, rows in arrays.items()}
    of_clouds = {"observation": a_header(layout).observation}
    data = tmp_path_factory.mktemp("data")
    with (
        DatasetWriter(data / "variants", header) as writer,
        DatasetWriter(data / "cloud", header.model_copy(update=of_clouds)) as cloud,
    ):
        for attempt, (name, episode) in enumerate(episodes.items()):
            facts = {
                "attempt": attempt,
                "outcome": episode.outcome,
                "success": episode.outcome == SUCCESS,
                "steps": len(episode),
                "state_digest": episode.final_digest,
                "error": episode.error,
            }
            content = episode_file.to_bytes(episode, attempt)
            chosen = cloud if name == "with a cloud" else writer
            chosen.add(record.model_copy(update=facts), content)
    names, strips = list(episodes), {}
    for dataset in map(Dataset, (cloud.folder, writer.folder)):
        listed = [names[record.attempt] for record in dataset.stored()]
        strips |= zip(listed, strips_of(dataset), strict=True)
    return Variants(Dataset(writer.folder), strips)


def with_cloud(episode: Episode) -> Episode:
    """Returns an episode that observes a point cloud of the keypoints, and absent points."""
    stored = episode.observations
    parts = [
        np.insert(stored[f"{part}_keypoints"], 3, mask, axis=2)
        for part, mask in (("tool", TOOL_MASK), ("object", OBJECT_MASK))
    ]
    absent = np.zeros((len(episode) + 1, 3, 4), np.float32)
    observations = {
        "end_effector_pose": stored["end_effector_pose"],
        "point_cloud": np.concatenate([*parts, absent], axis=1),
    }
    return replace(episode, observations=observations)


def cut(episode: Episode, length: int, env: ToolUseEnv) -> Episode:
    """Returns an episode whose actions ended too early."""
    return rollout(env, StoredActions(episode.actions[:length]), scene=episode.scene)


def altered(episode: Episode) -> Episode:
    """Returns an episode whose fourth action differs by a bit from the one that was executed."""
    actions = episode.actions.copy()
    actions[3, 2] = np.nextafter(actions[3, 2], np.float32(0))
    return replace(episode, actions=actions)


def strips_of(dataset: Dataset) -> list[Filmstrip]:
    return list(make_filmstrips(dataset, dataset.stored()))


def captions(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts if text.get_text().startswith("attempt")]


def frames(figure: Figure) -> list[Axes]:
    """Returns the axes that show frames."""
    return [axes for axes in figure.axes if axes.get_xlabel().startswith("step ")]


def on_page(page: np.ndarray, figure: Figure, axes: Axes) -> np.ndarray:
    """Returns the part of a saved page, (height, width, 3) uint8, that axes of its figure fill."""
    box = axes.get_position()
    height, width, _ = page.shape
    top, bottom = (round(height * (1 - y)) for y in (box.y1, box.y0))
    left, right = (round(width * x) for x in (box.x0, box.x1))
    return page[top:bottom, left:right]


def read(path: Path) -> np.ndarray:
    return np.round(255 * imread(path)[..., :3]).astype(np.uint8)


# --- Filmstrips -----------------------------------------------------------------------------


@needs_gl
def test_frames_show_the_states_that_the_actions_lead_to(folder, variants, env):
    episode, strip = Dataset(folder).episode(0), variants.strips["as stored"]
    frames = {frame.step: frame for frame in strip.frames}
    assert (min(frames), max(frames), len(frames)) == (0, len(episode), 5)
    assert strip.first_difference is None
    env.reset(options={"scene": episode.scene})
    for step in range(len(episode) + 1):
        if step:
            env.step(episode.actions[step - 1])
        if step not in frames:
            continue
        image = env.render()
        assert image is not None
        cropped = image[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
        np.testing.assert_array_equal(frames[step].image, cropped)
        state = env.world_state()
        for located, p_W in (
            (frames[step].tool, state.p_W_tool),
            (frames[step].object, state.p_W_object),
        ):
            expected = project(np.array(list(p_W.values()))) - (LEFT, TOP)
            distances = np.linalg.norm(located[:, None] - expected, axis=2)
            assert distances.min(axis=1).max() < 0.01


@needs_gl
def test_points_of_a_cloud_are_located_like_keypoints(variants):
    of_keypoints, of_cloud = variants.strips["as stored"], variants.strips["with a cloud"]
    for one, other in zip(of_keypoints.frames, of_cloud.frames, strict=True):
        np.testing.assert_allclose(one.tool, other.tool)
        np.testing.assert_allclose(one.object, other.object)


@needs_gl
def test_short_and_failed_episodes_have_fewer_frames(variants):
    strips = [variants.strips[name] for name in ("without steps", "with two steps")]
    assert [[frame.step for frame in strip.frames] for strip in strips] == [[0], [0, 1, 2]]
    figure = draw_contact_sheet(variants.dataset, strips)
    for caption in captions(figure):
        assert "FAILED: policy_error (FleetToolsError: All" in caption
    for axes in frames(figure):
        borders = [axes.spines[side] for side in ("left", "right", "top", "bottom")]
        assert {to_hex(border.get_edgecolor()) for border in borders} == {FAILURE_COLOR}


@needs_gl
def test_an_episode_that_does_not_replay_is_marked(variants):
    strip = variants.strips["altered"]
    assert strip.first_difference == 4
    (caption,) = captions(draw_contact_sheet(variants.dataset, [strip]))
    assert "NOT AS STORED from step 4 on" in caption


# --- The page -------------------------------------------------------------------------------


@needs_gl
def test_page_has_a_row_for_each_episode_with_the_stored_images_pixel_by_pixel(
    folder_with_images, tmp_path, capsys
):
    dataset, pages = Dataset(folder_with_images), []
    for count in (1, 9):
        path = tmp_path / f"{count}.png"
        options = ["--output", str(path), "--episodes", str(count), "--json", "--quiet"]
        assert main(["info", str(dataset.folder), *options]) == 0
        assert str(path) in json.loads(capsys.readouterr().out).values()
        pages.append(read(path))
    one, both = pages
    assert len(both) > len(one) + 2 * 150  # two cameras
    strips = strips_of(dataset)
    figure = draw_contact_sheet(dataset, strips)
    for caption, record in zip(captions(figure), dataset.stored(), strict=True):
        for part in (record.tool, record.object, record.seed, f"{record.steps} steps"):
            assert str(part) in caption
        assert "success after" in caption
    shown = iter(frames(figure))
    for strip in strips:
        stored = dataset.episode(strip.record.attempt).observations
        for step in range(3):
            axes = next(shown)
            assert axes.get_xlabel().startswith(f"step {step}, ")
            expected = np.concatenate([stored["overhead_rgb"][step], stored["wrist_rgb"][step]])
            np.testing.assert_array_equal(on_page(both, figure, axes), expected)
    assert next(shown, None) is None


def test_plots_count_what_is_stored(folder):
    dataset = Dataset(folder)
    lengths, pairs, success = draw_contact_sheet(dataset, []).axes
    bars = [bar for bar in lengths.patches if isinstance(bar, Rectangle)]
    assert sum(bar.get_height() for bar in bars) == len(dataset)
    covered = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    for record in dataset.stored():
        assert any(low < record.steps < high for low, high in covered)
    counts = pairs.images[0].get_array()
    assert counts is not None and counts.sum() == len(dataset)
    tools = sorted({str(record.tool) for record in dataset.stored()})
    assert [label.get_text().split("\n")[0] for label in success.get_yticklabels()] == tools
    (points,) = [c for c in success.collections if isinstance(c, PathCollection)]
    np.testing.assert_array_equal(np.asarray(points.get_offsets())[:, 0], 1.0)


def test_records_without_models_are_counted_as_unknown(folder, tmp_path, capsys):
    stored = Dataset(folder)
    with DatasetWriter(tmp_path / "nameless", stored.header) as writer:
        for record in stored.stored():
            nameless = record.model_copy(update={"tool": None, "object": None})
            content = episode_file.to_bytes(stored.episode(record.attempt), record.attempt)
            writer.add(nameless, content)
    dataset = Dataset(tmp_path / "nameless")
    *_, success = draw_contact_sheet(dataset, []).axes
    assert [label.get_text() for label in success.get_yticklabels()] == ["unknown\n2 of 2"]
    assert main(["info", str(dataset.folder)]) == 0
    assert "tools" not in capsys.readouterr().out


def test_without_gl_the_page_has_plots_and_a_warning_is_printed(
    folder, tmp_path, monkeypatch, capsys
):
    from fleet_tools.perception.opengl import require_gl

    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    # A driver that was found before in this process is remembered by `require_driver`.
    monkeypatch.setattr("fleet_tools.studio.pictures.filmstrip.require_driver", require_gl)
    path = tmp_path / "page.png"
    assert main(["info", str(folder), "--output", str(path), "--quiet"]) == 0
    assert GL_COMMAND in capsys.readouterr().err
    assert len(np.unique(read(path))) > 10


def test_dataset_without_episodes_has_no_page(folder, tmp_path, capsys):
    empty, page = tmp_path / "empty", tmp_path / "page.png"
    with DatasetWriter(empty, Dataset(folder).header) as writer:
        assert main(["info", str(empty), "--output", str(page)]) == 2
        assert "holds no episodes yet" in capsys.readouterr().err
        record = AttemptRecord(
            attempt=0, seed=1, outcome="time_limit", success=False, steps=9, seconds=1
        )
        writer.add(record)
    assert main(["info", str(empty), "--output", str(page)]) == 2
    assert "--keep-failures" in capsys.readouterr().err
    assert not page.exists()
    assert main(["info", str(empty), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["episode_steps"], summary["tools"]) == (None, {})
    assert summary["mean_attempt_seconds"] == 1


def test_a_page_that_cannot_be_drawn_leaves_the_last_one(folder, tmp_path, monkeypatch):
    def no_strips(dataset: Dataset, records: list[AttemptRecord]) -> Iterator[Filmstrip]:
        return iter(())

    def fail(axes: Axes, dataset: Dataset) -> None:
        raise OSError("gone")

    page = tmp_path / "page.png"
    page.write_bytes(b"the last one")
    monkeypatch.setattr(contact_sheet, "make_filmstrips", no_strips)
    monkeypatch.setattr(contact_sheet, "draw_lengths", fail)
    assert main(["info", str(folder), "--output", str(page), "--quiet"]) == 1
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(page, b"the last one")]
