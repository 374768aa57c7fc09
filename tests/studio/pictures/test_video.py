"""Videos, decoded again."""

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support.rendering import needs_gl

from fleet_tools.studio.pictures.filming import write_video

av = pytest.importorskip("av")


def frames_of(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as video:
        return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]


def test_colours_and_order_survive_the_video(tmp_path: Path) -> None:
    colors = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    file = tmp_path / "colors.mp4"
    write_video(file, [np.full((32, 48, 3), color, np.uint8) for color in colors], 6)
    means = [frame.mean(axis=(0, 1)) for frame in frames_of(file)]
    np.testing.assert_allclose(means, colors, atol=12)


def test_a_video_that_cannot_be_finished_leaves_the_last_one(tmp_path: Path) -> None:
    file = tmp_path / "rollout.mp4"
    file.write_bytes(b"the last one")

    def frames() -> Iterator[np.ndarray]:
        yield np.zeros((32, 48, 3), np.uint8)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_video(file, frames(), 6)
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(file, b"the last one")]


@needs_gl
def test_gymnasium_records_videos(tmp_path: Path) -> None:
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
    with av.open(str(file)) as video:
        assert video.streams.video[0].average_rate == env.metadata["render_fps"]
