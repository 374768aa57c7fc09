"""Shows episodes to people: `python -m fleet_tools.view --tool spatula`.

In the browser by Meshcat, where a slider moves time; or, with `--save`, in a file: `.html` is what
the browser shows, `.mp4` a video. Neither needs a screen.
"""

import argparse
import contextlib
import functools
import json
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR
from fleet_tools.errors import (
    ConfigError,
    DatasetError,
    FleetToolsError,
    MissingLibraryError,
)
from fleet_tools.parallel.interrupts import patient_interrupt
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import Episode
from fleet_tools.storage.atomic_files import whole
from fleet_tools.utils import cli as programs

# Drake is imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.visualization.recording import Show

PAUSE_S, POLL_S = 1.0, 0.1
"""Between two episodes; between two looks for Ctrl-C."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _view, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.view",
        "Shows episodes in the browser until Ctrl-C, or saves them in a file.",
        "Exits with 0 when all was shown, 1 when an episode broke off, 2 when it cannot begin.",
    )
    which = programs.add_task_options(parser)
    which.add_argument(
        "--dataset", metavar="DIR", type=Path, help="what was collected; stored actions act again"
    )
    programs.add_policy_option(parser, "expert")
    parser.add_argument(
        "--seed", type=programs.seed, default=0, help="of the scene, one more for each after it (0)"
    )
    parser.add_argument(
        "--attempt", metavar="K", type=programs.seed, default=0, help="of --dataset, the first (0)"
    )
    parser.add_argument(
        "--episodes", metavar="N", type=programs.positive_int, default=1, help="how many (1)"
    )
    parser.add_argument(
        "--save", metavar="FILE", type=Path, help="a recording (.html) or a video (.mp4)"
    )
    return parser


def _view(options: argparse.Namespace) -> int:
    _check_save(options)
    # A policy may print, and JSON is to be alone on stdout.
    with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
        env, shows = _open(options)
        if options.save is None:
            episodes = _show_live(options, env, shows)
        elif options.save.suffix == ".mp4":
            episodes = _save_video(options, env, shows)
        else:
            episodes = _save_recording(options, env, shows)
    if options.json:
        outcomes = [episode.outcome for episode in episodes]
        print(json.dumps({"outcomes": outcomes, "save": options.save and str(options.save)}))
    broke_off = any(episode.outcome in (POLICY_ERROR, SIMULATION_ERROR) for episode in episodes)
    return programs.NOT_WELL if broke_off else programs.OK


def _check_save(options: argparse.Namespace) -> None:
    """Complains before an episode has run for nothing."""
    save = options.save
    if save is None:
        return
    if save.suffix not in (".html", ".mp4"):
        raise FleetToolsError(f"--save makes .html or .mp4; given: {save}")
    if not save.absolute().parent.is_dir():
        raise FleetToolsError(
            f"There is no folder {save.absolute().parent} to save {save.name} in."
        )
    if save.suffix == ".html" and options.episodes > 1:
        raise FleetToolsError(
            f"A recording holds one episode; --episodes {options.episodes} wants .mp4, or a "
            "recording for each --seed."
        )
    if save.suffix == ".mp4":
        from fleet_tools.visualization.video import require_video

        require_video()


def _open(options: argparse.Namespace) -> tuple[gymnasium.Env, Iterator["Show"]]:
    """Makes the environment, and says what is to be shown in it."""
    from fleet_tools.policies.guarded import make_guarded
    from fleet_tools.policies.sources import find
    from fleet_tools.visualization.recording import Show

    video = options.save is not None and options.save.suffix == ".mp4"
    render_mode = "rgb_array" if video else "human"
    if options.dataset is not None:
        return _open_dataset(options, render_mode)
    policy = find(options.policy)
    task = programs.chosen_task(options)
    make = functools.partial(make_environment, task=task, render_mode=render_mode)
    # The package's own read no cloud, and people like to see one.
    env = _with_cloud(make) if policy.kind == "built_in" else make(**policy.environment)

    def shows() -> Iterator[Show]:
        for seed in range(options.seed, options.seed + options.episodes):
            title = f"{env.unwrapped.task.name}, seed {seed}: {policy.name}"
            yield Show(title, make_guarded(policy, env, seed), {"seed": seed})

    return env, shows()


def _with_cloud(make: Callable[..., gymnasium.Env]) -> gymnasium.Env:
    """Makes an environment that sees point clouds, where there are cameras and OpenGL."""
    from fleet_tools.perception.opengl import require_driver

    try:
        require_driver()
        return make(obs_mode="point_cloud")
    except (ConfigError, MissingLibraryError) as error:
        env = make(obs_mode="state")
        print(f"No point cloud is shown: {error}", file=sys.stderr)
        return env


def _open_dataset(
    options: argparse.Namespace, render_mode: str
) -> tuple[gymnasium.Env, Iterator["Show"]]:
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.header import remake_environment
    from fleet_tools.rollouts.episode import StoredActions
    from fleet_tools.visualization.recording import Show

    dataset = Dataset(options.dataset)
    records = [record for record in dataset.stored() if record.attempt >= options.attempt]
    if not records:
        raise DatasetError(f"{dataset.folder} holds no episode from attempt {options.attempt} on.")
    remake = functools.partial(remake_environment, dataset.header, render_mode=render_mode)
    env = _with_cloud(remake)

    def shows() -> Iterator[Show]:
        for record in records[: options.episodes]:
            episode = dataset.episode(record.attempt)
            title = f"{dataset.header.task.name}, attempt {record.attempt}: {record.outcome}"
            yield Show(title, StoredActions(episode.actions), {"scene": episode.scene})

    return env, shows()


def _show_live(
    options: argparse.Namespace, env: gymnasium.Env, shows: Iterator["Show"]
) -> list[Episode]:
    """Plays one episode after the other, and the last one again and again, until Ctrl-C."""
    from fleet_tools.visualization.recording import record

    url = env.unwrapped.meshcat.web_url()
    print(f"Watch at {url} (Ctrl-C ends)", file=sys.stderr, flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
    episodes = []
    # One that comes while objects are freed would be lost, so it is noted and asked for.
    with patient_interrupt() as interrupted, contextlib.suppress(KeyboardInterrupt):
        for show in shows:
            if episodes:
                played = time.monotonic() + len(episodes[-1]) / env.metadata["render_fps"]
                while time.monotonic() < played + PAUSE_S and not interrupted():
                    time.sleep(POLL_S)
            if interrupted():
                break
            episodes.append(record(env, show))
            _report(options, show, episodes[-1])
        while not interrupted():
            time.sleep(POLL_S)
    return episodes


def _save_recording(
    options: argparse.Namespace, env: gymnasium.Env, shows: Iterator["Show"]
) -> list[Episode]:
    from fleet_tools.visualization.recording import record

    show = next(shows)
    episode = record(env, show)
    with whole(options.save) as aside:
        aside.write_text(env.unwrapped.meshcat.StaticHtml())
    _report(options, show, episode)
    return [episode]


def _save_video(
    options: argparse.Namespace, env: gymnasium.Env, shows: Iterator["Show"]
) -> list[Episode]:
    from fleet_tools.visualization.recording import film
    from fleet_tools.visualization.video import write_video

    episodes = []

    def pictures() -> Iterator[np.ndarray]:
        for show in shows:
            episode, pictures = film(env, show)
            episodes.append(episode)
            _report(options, show, episode)
            yield from pictures

    write_video(options.save, pictures(), env.metadata["render_fps"])
    return episodes


def _report(options: argparse.Namespace, show: "Show", episode: Episode) -> None:
    if not (options.json or options.quiet):
        error = f" ({episode.error})" if episode.error else ""
        print(f"{show.title}: {episode.outcome}{error}, {len(episode)} steps", flush=True)


if __name__ == "__main__":
    sys.exit(main())
