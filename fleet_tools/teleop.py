"""Collects demonstrations by hand: `python -m fleet_tools.teleop --tool hammer`.

Keyboard, gamepad and a gizmo in the browser move the end effector. Episodes are
stored like any other policy's.
"""

import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pydantic

from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.mode_options import EnvArgument, ObsModeOption
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.utils import cli

# Datasets and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.dataset.dataset_folder import DatasetWriter
    from fleet_tools.dataset.stored_episode import AttemptRecord
    from fleet_tools.envs.tool_use_env import ToolUseEnv


class TeleopOptions(cli.Options):
    """Lets a person act in the browser, and adds saved episodes to a dataset.

    The page is for this machine and one tab of its browser alone; its address, which is another one
    in every run, is printed on stderr. Each scene is saved, discarded or begun again, and what is
    saved is stored at once. The same command resumes a dataset.

    Exit codes:
    0: the dataset holds as many episodes as requested; without --episodes, Ctrl-C or SIGTERM.
    1: the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C or SIGTERM before.
    """

    task: TaskOptions
    episodes: Count | None = None
    """Number of successful episodes that the dataset is to hold (default: until Ctrl-C)."""
    obs_mode: ObsModeOption = "state"
    """Stored observations."""
    env: tuple[EnvArgument, ...] = ()
    """Other keyword arguments of the environment, such as split=unseen_tools."""
    seed: Seed = 0
    """Seed of the dataset."""
    output: Path | None = None
    """Folder of the dataset (default: data/TASK_teleoperation)."""
    verify: bool = False
    """Run each success again from its actions before it counts, and compare every bit."""
    port: Annotated[int, pydantic.Field(ge=0, lt=2**16)] = 8090
    """Port of the page; 0 takes a free one."""


def _teleop(options: TeleopOptions) -> int:
    from fleet_tools.utils.libraries import require

    require("viser", "show the scene in the browser")
    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)

    from fleet_tools.dataset.dataset_folder import DatasetWriter
    from fleet_tools.dataset.header import describe
    from fleet_tools.dataset.summary import as_text
    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.envs.tool_use_env import unwrap
    from fleet_tools.studio.teleoperation.operator_policy import NAME

    given = dict(options.env)
    if "task" in given:
        raise ConfigError("--env cannot set the task. Give --tool or --task.")
    spec = EnvSpec.of(options.task.name_or_path(), **{"obs_mode": options.obs_mode, **given})
    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr), contextlib.closing(unwrap(spec.make())) as env:
        header = describe(env, spec, policy=NAME, seed=options.seed, keep_failures=True)
        folder = options.output or Path("data") / f"{header.task.name}_{NAME}"
        with DatasetWriter(folder, header) as writer:
            before = len(writer.records)
            failure = _act(options, env, writer)
    summary = _summary(folder, options.episodes, before) | {
        "seconds": round(time.perf_counter() - started, 3)
    }
    options.report(summary, lambda: as_text(summary))
    if isinstance(failure, OSError) or not summary["complete"]:
        return cli.stopped(failure)
    return cli.OK


def _act(
    options: TeleopOptions, env: "ToolUseEnv", writer: "DatasetWriter"
) -> BaseException | None:
    """Lets the person act; returns Ctrl-C, or an error of the disk, if one ended it."""
    from fleet_tools.studio.teleoperation.session import open_session

    try:
        with open_session(
            env,
            writer,
            port=options.port,
            episodes=options.episodes,
            verify=options.verify,
        ) as session:
            # Opened by the person: arguments of a browser are seen by other users of the machine.
            text = f"{env.task.description}\nAct at {session.url} (Ctrl-C ends)"
            print(text, file=sys.stderr, flush=True)
            with deferred_interrupt(signal.SIGTERM) as interrupted:
                session.run(lambda record: _report(options, record), interrupted)
    except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full or gone
        return error
    return None


def _report(options: TeleopOptions, record: "AttemptRecord") -> None:
    if not options.quiet:
        stored = "saved" if record.file is not None else "not stored"
        print(
            f"attempt {record.attempt}: {record.outcome}, {record.steps} steps, {stored}",
            file=sys.stderr,
            flush=True,
        )


def _summary(folder: Path, episodes: int | None, before: int) -> dict[str, Any]:
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.summary import summarize

    dataset = Dataset(folder)  # from the disk: Ctrl-C may have come at any moment
    records = dataset.manifest()
    return {
        **summarize(folder, dataset.header, records),
        "episodes": episodes,
        "complete": episodes is None or sum(record.success for record in records) >= episodes,
        "attempts_now": len(records) - before,
    }


PROGRAM = cli.Program("teleop", cli.Command(TeleopOptions, _teleop))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
