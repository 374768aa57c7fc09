"""Collects demonstrations: `python -m fleet_tools.collect --tool hammer --episodes 20`.

Attempt k of seed s gives the same bytes in every run, whatever the number of workers.
"""

import contextlib
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count, Seed
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.parallel.options import WorkerOptions
from fleet_tools.policies.sources import PolicyName, find_policy
from fleet_tools.utils import cli
from fleet_tools.utils.option_parser import KeyValue

# Datasets and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.dataset.header import Header
    from fleet_tools.policies.sources import PolicySource


class CollectOptions(cli.Options):
    """Collects demonstrations into a dataset, or resumes an interrupted collection.

    Exit codes:
    0: the dataset holds as many episodes as requested.
    1: the limit of attempts, 10 times as many plus 10, was reached first.
    2: it cannot begin.
    130: Ctrl-C, which waits for the episodes in progress.
    """

    task: TaskOptions
    episodes: Count
    """Number of successful episodes that the dataset is to hold."""
    policy: PolicyName = "expert"
    obs_mode: str | None = None
    """Stored observations: state, multitask_state, point_cloud or rgbd (default: those that the
    policy reads, or else state)."""
    env: tuple[KeyValue, ...] = ()
    """Other keyword arguments of the environment, such as split=unseen_tools
    camera_size=[640,480]."""
    seed: Seed = 0
    """Seed of the dataset."""
    output: Path | None = None
    """Folder of the dataset (default: data/TASK)."""
    keep_failures: bool = False
    """Store failed episodes, too, marked as such."""
    verify: bool = False
    """Run each success again from its actions before it counts, and compare every bit."""
    workers: WorkerOptions = WorkerOptions()


def _collect(options: CollectOptions) -> int:
    from fleet_tools.dataset.attempts import make_attempts
    from fleet_tools.dataset.collection import fill_with_bar
    from fleet_tools.dataset.reader import Dataset
    from fleet_tools.dataset.summary import as_text, summarize
    from fleet_tools.dataset.writer import DatasetWriter

    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy = find_policy(options.policy)
        header = _header(options, policy)
    folder = options.output or Path("data") / header.task.name
    make_work = partial(make_attempts, header, policy, options.verify)
    failure = None
    with (
        DatasetWriter(folder, header) as writer,
        deferred_interrupt() as interrupted,
        contextlib.redirect_stdout(sys.stderr),  # without workers, the policy prints here
    ):
        before = len(writer.records)
        try:
            fill_with_bar(
                writer,
                partial(options.workers.run, make_work=make_work),
                options.episodes,
                quiet=options.quiet,
                stop=interrupted,
            )
        except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full or gone
            failure = error
    records = Dataset(folder).manifest()  # from the disk: Ctrl-C may have come at any moment
    seconds = time.perf_counter() - started
    summary = {
        **summarize(folder, header, records),
        "episodes": options.episodes,
        "complete": sum(record.success for record in records) >= options.episodes,
        "attempts_now": len(records) - before,
        "seconds": round(seconds, 3),
    }
    now = summary["attempts_now"]
    options.report(
        summary,
        lambda: (
            f"{as_text(summary)}\n"
            f"  {now} attempts now, in {seconds:.1f} s: {now / seconds:.2f} per second"
        ),
    )
    return _code(options, summary, failure, interrupted())


def _header(options: CollectOptions, policy: "PolicySource") -> "Header":
    """Describes the dataset, after checking that it can be collected."""
    from fleet_tools.dataset.header import describe
    from fleet_tools.envs.spec import EnvSpec

    given = dict(options.env)
    if options.obs_mode:
        given = {"obs_mode": options.obs_mode, **given}
    if "task" in given:
        raise ConfigError("--env cannot set the task. Give --tool or --task.")
    kwargs = {"obs_mode": "state", **policy.env_kwargs, **given}
    spec = EnvSpec.of(options.task.name_or_path(), **kwargs)
    env = spec.make()
    try:
        policy.make(env)
        return describe(
            env,
            spec,
            policy=str(policy),
            seed=options.seed,
            keep_failures=options.keep_failures,
        )
    finally:
        env.close()


def _code(
    options: CollectOptions,
    summary: dict[str, Any],
    failure: BaseException | None,
    interrupted: bool,
) -> int:
    """Reports on stderr why there are fewer episodes than requested; returns the exit code."""
    if failure is not None or (interrupted and not summary["complete"]):
        return cli.stopped(failure)
    if not summary["complete"]:
        print(
            f"Gave up after {summary['attempts']} attempts, the limit for "
            f"{options.episodes} {'episode' if options.episodes == 1 else 'episodes'}; "
            f"{summary['successes']} succeeded.",
            file=sys.stderr,
        )
        return cli.FAILED
    return cli.OK


PROGRAM = cli.Program("collect", cli.Command(CollectOptions, _collect))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
