"""Photographs stored episodes: `python -m fleet_tools.photograph DATASET --output DIR`.

Colour comes from a Blender server (`python -m fleet_tools.blender`), depth and labels from VTK, of
the same cameras at the same moments. The stored actions run again, and a photograph is only taken
of a state that is the stored one bit for bit.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.envs.outcomes import SIMULATION_ERROR
from fleet_tools.errors import ConfigError, DatasetError, RenderServerError, UnknownNameError
from fleet_tools.utils import cli as programs

if TYPE_CHECKING:
    from fleet_tools.blender.photographer import Photographer
    from fleet_tools.envs.tool_use_env import EnvState, ToolUseEnv

INDEX = "photographs.jsonl"


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _photograph, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.photograph",
        "Photographs the episodes of a data set, or a scene, with Blender.",
        "Exits with 0 when all photographs are taken, 1 when the disk fails, 2 when it cannot "
        "begin or go on, 130 after Ctrl-C.",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", type=Path, help="folder of a data set, or a scene as JSON")
    add("--task", metavar="FILE", help="of your own, where SOURCE is a scene of it")
    add("--output", metavar="DIR", type=Path, required=True, help="new or empty")
    add("--server", metavar="URL", default="http://127.0.0.1:8000", help="(%(default)s)")
    add(
        "--camera",
        metavar="NAME",
        action="append",
        help='one of the task\'s, or "third" for the view of env.render(); may be repeated (third)',
    )
    add("--size", metavar="WxH", type=_size, default=(640, 480), help="in pixels (640x480)")
    add("--episodes", metavar="N", type=programs.positive_int, help="only the first so many")
    add("--every", metavar="K", type=programs.positive_int, default=1, help="control steps (1)")
    add(
        "--in-flight",
        metavar="N",
        type=programs.positive_int,
        help="photographs taken at the same time (as many as the server has workers)",
    )
    return parser


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return programs.positive_int(width), programs.positive_int(height)


def _photograph(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from fleet_tools.blender.photographer import THIRD, Photographer, require_server

    health = require_server(options.server)
    if options.output.exists() and any(options.output.iterdir()):
        raise ConfigError(f"{options.output} is not empty; photographs want a folder of their own.")
    env, visuals, moments = _moments(options)
    cameras = options.camera or [THIRD]
    for camera in cameras:
        if camera not in (known := [THIRD, *env.task.cameras]):
            raise UnknownNameError("camera", camera, known)
    options.output.mkdir(parents=True, exist_ok=True)
    begun, taken = time.perf_counter(), 0
    in_flight = options.in_flight or health["workers"]
    photographer = env.task, options.server, options.size, visuals
    # Started afresh, for OpenGL does not survive a fork.
    pool = ProcessPoolExecutor(
        in_flight, get_context("spawn"), initializer=_set_up, initargs=(Photographer, photographer)
    )
    with pool, (options.output / INDEX).open("w") as index, contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        progress = stack.enter_context(tqdm(unit="photograph", disable=options.quiet))
        jobs = (
            (name, state, camera, options.output) for name, state in moments for camera in cameras
        )
        for future in _all_done(pool, jobs, 2 * in_flight):
            print(json.dumps(_line(future)), file=index, flush=True)
            taken += 1
            progress.update()
    seconds = time.perf_counter() - begun
    summary = {
        "photographs": taken,
        "seconds": round(seconds, 3),
        "seconds_per_photograph": round(seconds / taken, 3),
        "in_flight": in_flight,
        "server": dict(health),
        "folder": str(options.output),
    }
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        print(
            f"{taken} photographs in {options.output}, {summary['seconds_per_photograph']:.2f} s "
            f"each with {in_flight} in flight"
        )
    return programs.OK


def _moments(
    options: argparse.Namespace,
) -> tuple["ToolUseEnv", str, Iterator[tuple[str, "EnvState"]]]:
    """Returns an environment, its robot's visuals, and what to photograph in it, by name."""
    from fleet_tools.config.values import parse
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.header import remake_environment
    from fleet_tools.registration import make_environment
    from fleet_tools.sim.scene import Scene

    if options.source.is_dir():
        dataset = Dataset(options.source)
        env = remake_environment(dataset.header).unwrapped
        visuals = dataset.header.environment.kwargs.get("robot_visuals", "light")
        return env, visuals, _states_of_episodes(dataset, env, options.episodes, options.every)
    try:
        scene = parse(Scene, json.loads(options.source.read_text()), str(options.source))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{options.source} is no scene as JSON: {error}") from error
    env = make_environment(task=options.task or scene.task).unwrapped
    env.reset(options={"scene": scene})
    return env, "light", iter([(options.source.stem, env.get_state())])


def _states_of_episodes(
    dataset: Any, env: "ToolUseEnv", episodes: int | None, every: int
) -> Iterator[tuple[str, "EnvState"]]:
    records = dataset.stored()[:episodes]
    if not records:
        raise DatasetError(f"{dataset.folder} holds no episodes yet.")
    for record in records:
        episode = dataset.episode(record.attempt)
        env.reset(options={"scene": episode.scene})
        for step in range(len(episode) + 1):
            if step:
                env.step(episode.actions[step - 1])
            if env.state_digest() != episode.digests[step]:
                raise DatasetError(
                    f"{record.file} does not replay here: it differs at step {step}. "
                    f"`python -m fleet_tools.replay {dataset.folder}` says more."
                )
            broken = episode.outcome == SIMULATION_ERROR and step == len(episode)
            if step % every == 0 and not broken:
                yield f"{record.attempt:06d}_{step:03d}", env.get_state()


def _all_done(pool: ProcessPoolExecutor, jobs: Iterator[tuple], at_most: int) -> Iterator[Future]:
    """Hands out jobs, never many more than are worked on, and yields them as they are done."""
    pending: set[Future] = set()
    for job in jobs:
        pending.add(pool.submit(_take, *job))
        if len(pending) >= at_most:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from done
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from done


def _line(future: Future) -> dict[str, Any]:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise RenderServerError(
            f"A process that takes photographs died: {error} "
            "Fewer need less memory; --in-flight says how many."
        ) from error


# --- In the processes of the pool ------------------------------------------------------------

_photographer: "Photographer | None" = None
"""Of this process: it keeps a simulation, which no process can hand to another."""


def _set_up(kind: type["Photographer"], arguments: tuple) -> None:
    global _photographer
    _photographer = kind(*arguments)


def _take(name: str, state: "EnvState", camera: str, folder: Path) -> dict[str, Any]:
    """Writes a photograph's files, and returns its line of the index."""
    photograph = _photographer.photograph(state, camera)
    files = photograph.save(folder / f"{name}_{camera}")
    return {
        "name": name,
        "camera": camera,
        **files,
        "K": photograph.K.tolist(),
        "X_WC": photograph.X_WC.GetAsMatrix4().tolist(),
        "scene": state.scene.model_dump(mode="json"),
        "step": state.snapshot.step,
    }


if __name__ == "__main__":
    sys.exit(main())
