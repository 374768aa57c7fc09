"""Shows episodes: `python -m fleet_tools.view --tool spatula`.

They are shown in the browser by Meshcat, with a slider for the time, or written to a file: an
`.html` file holds what the browser shows, an `.mp4` file is a video. Neither needs a screen.
"""

import contextlib
import json
import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import pydantic

from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count, CountOrZero, Seed
from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR
from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.policies.sources import PolicyName
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.utils import cli
from fleet_tools.utils.option_parser import Size

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.rollouts.episode import Episode
    from fleet_tools.studio.pictures.recording import EpisodeSource, PlannedEpisode

RECORDING, VIDEO = ".html", ".mp4"

LARGEST_FPS = 250
"""The physics has so many updates per second."""
SIZES = (16, 4096)
"""Smallest and largest width and height of a video, pixels."""

PAUSE_S = 1.0
"""Pause between two episodes in the browser."""
_POLL_S = 0.1


class SourceOptions(TaskOptions):
    """A task, in which a policy acts, or a dataset, whose stored actions run again."""

    dataset: Path | None = None
    """Folder of a dataset; its stored actions run again."""

    @pydantic.model_validator(mode="after")
    def _one_task(self) -> Self:
        if [self.tool, self.task, self.dataset].count(None) != 2:
            raise ValueError("give one of --tool, --task and --dataset")
        return self


class ViewOptions(cli.Options):
    """Shows episodes in the browser until Ctrl-C, or writes them to a file.

    Exit codes:
    0: all episodes were shown.
    1: an episode ended by an error of the policy or the simulator.
    2: it cannot begin.
    130: Ctrl-C while a file is written; in the browser, Ctrl-C is the normal end.
    """

    source: SourceOptions
    policy: PolicyName = "expert"
    seed: Seed = 0
    """Seed of the first scene; the next scenes have the next seeds."""
    split: str = "train"
    """Split from which tool and object are drawn: train, unseen_pairs, unseen_tools, unseen_objects
    or all."""
    attempt: CountOrZero = 0
    """Number of the first attempt that is shown of a dataset."""
    episodes: Count = 1
    """Number of episodes."""
    output: Path | None = None
    """New recording (.html) or video (.mp4), instead of the browser."""
    fps: Annotated[Count, pydantic.Field(le=LARGEST_FPS)] | None = None
    """Frames per second of a video (default: 30)."""
    size: Size | None = None
    """Width and height of a video, in pixels (default: 640x480)."""
    camera: str | None = None
    """Name of a camera of the task, or "third", for a video (default: third)."""
    plain: bool = False
    """Do not draw keypoints, plan, path and point cloud, as in videos."""

    @pydantic.model_validator(mode="after")
    def _fitting_video(self) -> Self:
        if self.output is None or self.output.suffix != VIDEO:
            for name in ("fps", "size", "camera"):
                if getattr(self, name) is not None:
                    raise ValueError(f"--{name} is for videos; give --output a {VIDEO} file")
        smallest, largest = SIZES
        if self.size is not None and not all(
            smallest <= length <= largest and length % 2 == 0 for length in self.size
        ):
            raise ValueError(
                f"--size needs an even width and height from {smallest} to {largest}; given: "
                f"{self.size[0]}x{self.size[1]}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _writable_output(self) -> Self:
        output = self.output
        if output is None:
            return self
        if output.suffix not in (RECORDING, VIDEO):
            raise ValueError(f"--output writes {RECORDING} or {VIDEO} files; given: {output}")
        if output.suffix == RECORDING and self.episodes > 1:
            raise ValueError(
                f"a recording holds one episode; for --episodes {self.episodes}, give --output a "
                f"{VIDEO} file, or run the program once for each --seed"
            )
        return self


def _view(options: ViewOptions) -> int:
    output = options.output
    if output is not None:
        _require_writable(output)
    # A policy may print, and JSON is to be alone on stdout.
    with contextlib.redirect_stdout(sys.stderr if options.json_output else sys.stdout):
        source = _open_source(options)
        if output is None:
            episodes = _show(options, source)
        elif output.suffix == VIDEO:
            episodes = _write_video(options, source, output)
        else:
            episodes = _write_recording(options, source, output)
    outcomes = [episode.outcome for episode in episodes]
    if options.json_output:
        print(json.dumps({"outcomes": outcomes, "output": output and str(output)}))
    failed = any(outcome in (POLICY_ERROR, SIMULATION_ERROR) for outcome in outcomes)
    return cli.FAILED if failed else cli.OK


def _require_writable(output: Path) -> None:
    """Checks that a file can be written, before an episode runs in vain."""
    if not output.absolute().parent.is_dir():
        raise FleetToolsError(
            f"There is no folder {output.absolute().parent} for {output.name}. Create it first."
        )
    if output.suffix == VIDEO:
        from fleet_tools.studio.pictures.filming import require_video

        require_video()


def _open_source(options: ViewOptions) -> "EpisodeSource":
    from fleet_tools.studio.pictures.recording import dataset_source, policy_source

    video = options.output is not None and options.output.suffix == VIDEO
    render_mode = "rgb_array" if video else "human"
    folder, count = options.source.dataset, options.episodes
    if folder is not None:
        return dataset_source(folder, options.attempt, count, render_mode)
    task = options.source.name_or_path()
    return policy_source(
        task, options.policy, options.seed, count, split=options.split, render_mode=render_mode
    )


def _show(options: ViewOptions, source: "EpisodeSource") -> list["Episode"]:
    """Plays one episode after another in the browser, the last one in a loop, until Ctrl-C."""
    from fleet_tools.studio.pictures.recording import MeshcatRecorder

    recorder = MeshcatRecorder(source.env, annotated=not options.plain)
    print(f"Watch at {recorder.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(recorder.url)
    episodes: list[Episode] = []
    with deferred_interrupt() as interrupted, contextlib.suppress(KeyboardInterrupt):
        for planned in source.episodes:
            if episodes:
                duration_s = len(episodes[-1]) / source.env.metadata["render_fps"]
                end = time.monotonic() + duration_s + PAUSE_S
                while time.monotonic() < end and not interrupted():
                    time.sleep(_POLL_S)
            if interrupted():
                break
            episodes.append(recorder.record(planned))
            _report_episode(options, planned, episodes[-1])
        while not interrupted():
            time.sleep(_POLL_S)
    return episodes


def _write_recording(
    options: ViewOptions, source: "EpisodeSource", output: Path
) -> list["Episode"]:
    from fleet_tools.studio.pictures.recording import MeshcatRecorder

    recorder = MeshcatRecorder(source.env, annotated=not options.plain)
    planned = next(source.episodes)
    episode = recorder.record(planned)
    write_file(output, recorder.html())
    _report_episode(options, planned, episode)
    return [episode]


def _write_video(options: ViewOptions, source: "EpisodeSource", output: Path) -> list["Episode"]:
    from fleet_tools.perception.display import check_camera
    from fleet_tools.studio.pictures.filming import Shot, film, open_video

    given = {name: getattr(options, name) for name in ("fps", "size", "camera")}
    chosen = {name: value for name, value in given.items() if value is not None}
    shot = Shot(**chosen)
    check_camera(source.env.task, shot.camera)
    episodes: list[Episode] = []
    with open_video(output, shot.fps) as add_frame:
        for planned in source.episodes:
            episodes.append(film(source.env, planned, shot, add_frame))
            _report_episode(options, planned, episodes[-1])
    return episodes


def _report_episode(options: ViewOptions, planned: "PlannedEpisode", episode: "Episode") -> None:
    if not (options.json_output or options.quiet):
        error = f" ({episode.error})" if episode.error else ""
        print(f"{planned.title}: {episode.outcome}{error}, {len(episode)} steps", flush=True)


PROGRAM = cli.Program("view", cli.Command(ViewOptions, _view))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
