"""Images of an episode as AV1 video: a third smaller than H.264, with reproducible bytes."""

import functools
import io
import os
from typing import Any

import numpy as np

from fleet_tools.utils.libraries import require

_FORMAT = "ivf"


def write_video(images: np.ndarray, quality: int) -> bytes:
    """Returns images as a video.

    Args:
        images: (n, height, width, 3) uint8, with even sizes.
        quality: Constant rate factor, from 1 (best) to 63.

    Raises:
        MissingLibraryError: PyAV is missing.
    """
    av = _av()
    target = io.BytesIO()
    with av.open(target, "w", format=_FORMAT) as file:
        stream = file.add_stream("libsvtav1", rate=6)
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt, stream.thread_count = "yuv420p", 1
        stream.options = {"crf": str(quality), "preset": "4", "svtav1-params": "lp=1"}
        for image in images:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(image))))
        file.mux(stream.encode())
    return target.getvalue()


def read_video(video: bytes, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the images of a video, (n, height, width, 3) uint8.

    Args:
        video: The video, from whomever.
        count: Their number.
        shape: The shape of each.

    Raises:
        ValueError: It is no video of so many images of this shape.
        MissingLibraryError: PyAV is missing.
    """
    av, frames = _av(), []
    try:
        with av.open(io.BytesIO(video), format=_FORMAT) as file:
            file.streams.video[0].thread_count = 1
            for frame in file.decode(video=0):
                if len(frames) == count or (frame.height, frame.width) != shape[:2]:
                    raise ValueError("a video has images of another size or type")
                frames.append(frame.to_ndarray(format="rgb24"))
    except (av.error.FFmpegError, IndexError) as error:
        raise ValueError(f"a video is damaged ({error})") from None
    if len(frames) < count:
        raise ValueError("a video has too few images")
    return np.stack(frames)


@functools.cache
def _av() -> Any:
    os.environ.setdefault("SVT_LOG", "1")  # errors alone; the encoder writes to stderr otherwise
    return require("av", "send images as videos")
