"""Collects demonstrations: `python -m fleet_tools.collect --tool hammer --episodes 20`.

Attempt k of seed s is the same bytes on every run, whatever the number of workers.
"""

import argparse
import contextlib
import json
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.errors import ConfigError
from fleet_tools.parallel.interrupts import patient_interrupt
from fleet_tools.registration import make_environment
from fleet_tools.utils import cli as programs

# Data sets, tasks and Drake are imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.dataset import Record
    from fleet_tools.dataset.header import Header
    from fleet_tools.policies.sources import PolicySource


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _collect, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.collect",
        "Collects demonstrations into a data set; goes on with one that was interrupted.",
        "Exits with 0 when there are as many episodes as asked for, 1 when the limit of attempts "
        "(10 N + 10) came first, 2 when it cannot begin, 130 after Ctrl-C, which waits for the "
        "episodes at work.",
    )
    programs.add_task_options(parser)
    parser.add_argument(
        "--episodes", metavar="N", type=programs.positive_int, required=True,
        help="how many successful episodes the data set is to hold",
    )  # fmt: skip
    programs.add_policy_option(parser, "expert")
    parser.add_argument(
        "--obs-mode", metavar="MODE",
        help="what is stored of each step: state, multitask_state, point_cloud or rgbd (what the "
        "policy reads, else state)",
    )  # fmt: skip
    parser.add_argument(
        "--env", metavar="KEY=VALUE", type=programs.keyword, nargs="+", default=[],
        help="other keywords of the environment, such as split=unseen_tools camera_size=[640,480]",
    )  # fmt: skip
    parser.add_argument("--seed", type=programs.seed, default=0, help="of the data set (0)")
    parser.add_argument("--output", metavar="DIR", type=Path, help="its folder (data/TASK)")
    parser.add_argument(
        "--keep-failures", action="store_true", help="store episodes that failed, too, marked so"
    )
    parser.add_argument(
        "--verify", action="store_true",
        help="run each success again before it counts, and compare every bit",
    )  # fmt: skip
    programs.add_worker_options(parser)
    return parser


def _collect(options: argparse.Namespace) -> int:
    from fleet_tools.dataset import Dataset, DatasetWriter
    from fleet_tools.dataset.attempts import make_attempts
    from fleet_tools.dataset.collection import fill
    from fleet_tools.dataset.summary import as_text, summarize
    from fleet_tools.parallel import workers
    from fleet_tools.policies.sources import find

    begun = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy = find(options.policy)
        header = _header(options, policy)
    folder = options.output or Path("data") / header.task.name
    run = partial(
        workers.run,
        make_work=partial(make_attempts, header, policy, options.verify),
        **programs.worker_keywords(options),
    )
    failed = None
    with (
        DatasetWriter(folder, header) as writer,
        _Progress(options, writer.records) as progress,
        patient_interrupt() as interrupted,
        contextlib.redirect_stdout(sys.stderr),  # without workers, the policy prints here
    ):
        before = len(writer.records)
        try:
            fill(writer, run, options.episodes, after_each=progress.update, stop=interrupted)
        except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full, or gone
            failed = error
    records = Dataset(folder).manifest()  # from the disk, for Ctrl-C may have come at any moment
    seconds = time.perf_counter() - begun
    summary = {
        **summarize(folder, header, records),
        "episodes": options.episodes,
        "complete": sum(record.success for record in records) >= options.episodes,
        "attempts_now": len(records) - before,
        "seconds": round(seconds, 3),
    }
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        print(as_text(summary))
        now = summary["attempts_now"]
        print(f"  {now} attempts now, in {seconds:.1f} s: {now / seconds:.2f} a second")
    return _code(options, summary, failed, interrupted())


def _header(options: argparse.Namespace, policy: "PolicySource") -> "Header":
    """What is collected, by whom; whatever cannot be, is found here."""
    from fleet_tools.dataset.header import describe

    task = programs.chosen_task(options)
    given = {"obs_mode": options.obs_mode} if options.obs_mode else {}
    keywords = {"obs_mode": "state", **policy.environment, **given, **dict(options.env)}
    if "task" in keywords:
        raise ConfigError("--env does not name the task; --tool or --task does.")
    env = make_environment(task=task, **keywords)
    try:
        policy.make(env)
        return describe(
            env,
            task,
            policy=str(policy),
            seed=options.seed,
            keep_failures=options.keep_failures,
            **keywords,
        )
    finally:
        env.close()


def _code(
    options: argparse.Namespace, summary: dict, failed: BaseException | None, interrupted: bool
) -> int:
    """Says on stderr why there are fewer episodes than asked for, if so; returns the exit code."""
    if failed is not None or (interrupted and not summary["complete"]):
        return programs.stopped(failed)
    if not summary["complete"]:
        from fleet_tools.dataset.collection import attempt_limit

        limit = attempt_limit(options.episodes)
        print(
            f"Gave up after {summary['attempts']} attempts: {options.episodes} episodes may take "
            f"{limit} at most.",
            file=sys.stderr,
        )
        return programs.NOT_WELL
    return programs.OK


class _Progress:
    """The bar: successful episodes, their rate and the time left; failures and their causes."""

    def __init__(self, options: argparse.Namespace, records: list["Record"]) -> None:
        from tqdm import tqdm

        self._outcomes = Counter(record.outcome for record in records)
        self._successes = sum(record.success for record in records)
        self._bar = tqdm(
            total=options.episodes, initial=self._successes, unit="episode", disable=options.quiet
        )

    def update(self, record: "Record") -> None:
        self._outcomes[record.outcome] += 1
        self._successes += record.success
        self._bar.set_postfix_str(self._words(), refresh=not record.success)
        self._bar.update(record.success)

    def _words(self) -> str:
        failures = self._outcomes.copy()
        rate = self._successes / failures.total()
        del failures["success"]
        causes = [f"{count} {outcome}" for outcome, count in failures.most_common()]
        return ", ".join([f"success {rate:.0%}", *causes])

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()


if __name__ == "__main__":
    sys.exit(main())
