"""Videos that browsers play: H.264 in MP4, written by PyAV."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fleet_tools.storage.atomic_files import whole
from fleet_tools.utils.libraries import require


def require_video() -> None:
    """Says what videos need where it is missing.

    Raises:
        MissingLibraryError: PyAV or Pillow is absent.
    """
    require("av", "write videos")
    require("PIL", "write on videos")


def write_video(
    path: Path, pictures: Iterable[np.ndarray], rate_hz: int, *, reproducible: bool = False
) -> None:
    """Writes a video.

    Args:
        path: Of the file, which appears when the video is complete.
        pictures: (height, width, 3) uint8 each, of the same, even height and width.
        rate_hz: Pictures per second.
        reproducible: The same pictures always give the same bytes, which takes longer.

    Raises:
        MissingLibraryError: PyAV is absent.
        OSError: It cannot be written.
    """
    av = require("av", "write videos")
    options = {"crf": "20"}
    if reproducible:  # x264's vector code does not always agree with itself
        options["x264-params"] = "asm=0:threads=1"
    with whole(path) as aside, av.open(str(aside), "w", options={"movflags": "faststart"}) as file:
        stream = None
        for picture in pictures:
            if stream is None:
                stream = file.add_stream("libx264", rate=rate_hz, options=options)
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = "yuv420p"  # the one kind that every browser knows
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            file.mux(stream.encode(frame))
        if stream is not None:
            file.mux(stream.encode())
