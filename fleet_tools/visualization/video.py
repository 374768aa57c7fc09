"""Videos that browsers play: H.264 in MP4, written by PyAV."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np

from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.utils.libraries import require


def require_video() -> None:
    """Checks that annotated videos can be written.

    Raises:
        MissingLibraryError: PyAV or Pillow is absent; the message says how to install it.
    """
    require("av", "write videos")
    require("PIL", "write on videos")


def write_video(
    path: Path, frames: Iterable[np.ndarray], rate_hz: float, *, reproducible: bool = False
) -> None:
    """Writes a video.

    Args:
        path: File, which appears when the video is complete.
        frames: (height, width, 3) uint8 each, all of the same, even height and width.
        rate_hz: Frames per second.
        reproducible: Whether the same frames always give the same bytes, which takes longer.

    Raises:
        MissingLibraryError: PyAV is absent.
        OSError: The file cannot be written.
    """
    with open_video(path, rate_hz, reproducible=reproducible) as add_frame:
        for frame in frames:
            add_frame(frame)


@contextmanager
def open_video(
    path: Path, rate_hz: float, *, reproducible: bool = False
) -> Iterator[Callable[[np.ndarray], None]]:
    """Opens a video, and gives the function that adds a frame; see `write_video`."""
    av = require("av", "write videos")
    options = {"crf": "20"}
    if reproducible:  # x264's vector code does not always give the same bytes
        options["x264-params"] = "asm=0:threads=1"
    with (
        atomic_write(path) as aside,
        av.open(str(aside.absolute()), "w", options={"movflags": "faststart"}) as file,
    ):
        stream = None

        def add_frame(frame: np.ndarray) -> None:
            nonlocal stream
            if stream is None:
                rate = Fraction(rate_hz).limit_denominator(1000)
                stream = file.add_stream("libx264", rate=rate, options=options)
                stream.height, stream.width = frame.shape[:2]
                stream.pix_fmt = "yuv420p"  # the only pixel format that every browser plays
            encoded = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            file.mux(stream.encode(encoded))

        yield add_frame
        if stream is not None:
            file.mux(stream.encode())
