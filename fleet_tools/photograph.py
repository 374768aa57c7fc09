"""Photographs stored episodes: `python -m fleet_tools.photograph DATASET --output FOLDER`.

A Blender server (`python -m fleet_tools.blender`) renders the colour images, VTK renders depth and
segmentation, with the same cameras at the same moments. The stored actions run again, and a state
is photographed only if it is the stored one bit for bit.
"""

import contextlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction

from fleet_tools.config.values import Count
from fleet_tools.errors import ConfigError, RenderServerError
from fleet_tools.parallel import workers
from fleet_tools.parallel.workers import LostJob
from fleet_tools.utils import cli
from fleet_tools.utils.disk_errors import disk_errors
from fleet_tools.utils.option_parser import Size
from fleet_tools.utils.progress import progress_bar

INDEX = "photographs.jsonl"

_TIMEOUT_S = 3600.0
"""Time limit of a photograph; the server has a shorter one of its own."""


class PhotographOptions(cli.Options):
    """Photographs the episodes of a dataset with Blender.

    Exit codes:
    0: all photographs are taken.
    1: the disk failed.
    2: it cannot begin or continue.
    130: Ctrl-C.
    """

    dataset: Annotated[Path, Positional]
    """Folder of the dataset."""
    output: Path
    """New or empty folder for the photographs."""
    server: str = "http://127.0.0.1:8000"
    """URL of the Blender server."""
    camera: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Name of a camera of the task, or "third" for the view of env.render(); may be repeated
    (default: third)."""
    size: Size = (640, 480)
    """Width and height of the images, in pixels."""
    episodes: Count | None = None
    """Number of episodes of the dataset, from the first (default: all)."""
    every: Count = 1
    """Number of control steps from one photograph to the next."""


def _photograph(options: PhotographOptions) -> int:
    from fleet_tools.perception.display import THIRD, check_camera
    from fleet_tools.studio.photographs.photographer import (
        dataset_states,
        make_photographs,
        require_server,
    )

    health = require_server(options.server)
    output = options.output.resolve()
    if output.exists() and any(output.iterdir()):
        raise ConfigError(
            f"{options.output} is not empty. Give an empty or new folder for the photographs."
        )
    source = dataset_states(options.dataset, options.episodes, options.every)
    cameras = options.camera or (THIRD,)
    for camera in cameras:
        check_camera(source.task, camera)
    output.mkdir(parents=True, exist_ok=True)
    started, taken = time.perf_counter(), 0
    in_flight = int(health["workers"])  # as many as are drawn at the same time

    jobs = ((name, state, camera) for name, state in source.states for camera in cameras)
    results = workers.run(
        partial(next, jobs, None),
        partial(
            make_photographs,
            source.task,
            source.robot,
            options.server,
            options.size,
            source.robot_visuals,
            output,
        ),
        count=in_flight,
        timeout_s=_TIMEOUT_S,
    )
    with (
        (output / INDEX).open("w", encoding="utf-8") as index,
        contextlib.closing(results),
        progress_bar(None, "photograph", quiet=options.quiet) as bar,
    ):
        for _, result in results:
            if isinstance(result, LostJob):
                raise RenderServerError(
                    f"A photograph failed: {result.reason}. If memory is short, start the server "
                    "with fewer --workers."
                )
            with disk_errors(output / INDEX):
                print(json.dumps(result), file=index, flush=True)
            taken += 1
            bar.update()
    seconds = time.perf_counter() - started
    summary = {
        "photographs": taken,
        "seconds": round(seconds, 3),
        "seconds_per_photograph": round(seconds / taken, 3),
        "in_flight": in_flight,
        "server": dict(health),
        "folder": str(options.output),
    }
    options.report(
        summary,
        lambda: (
            f"{taken} photographs in {options.output}, {seconds / taken:.2f} s each with "
            f"{in_flight} in flight"
        ),
    )
    return cli.OK


PROGRAM = cli.Program("photograph", cli.Command(PhotographOptions, _photograph))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
