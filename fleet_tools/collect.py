"""Collects demonstrations: `python -m fleet_tools.collect --tool hammer --episodes 20`.

Attempt k of seed s gives the same bytes in every run, whatever the number of workers; a policy of
others that keeps something from one attempt to the next is found and named.
"""

import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.mode_options import EnvArgument, OptionalObsMode
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.policies.sources import PolicyName, find_policy
from fleet_tools.robot.arm import DEFAULT_ROBOT
from fleet_tools.utils import cli

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
    obs_mode: OptionalObsMode = None
    """Stored observations (default: the policy's own, or else state)."""
    robot: str = DEFAULT_ROBOT
    """Robot of the package by name, or your own by the path of its YAML file."""
    env: tuple[EnvArgument, ...] = ()
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
    from fleet_tools.dataset.collection import collect, exit_code
    from fleet_tools.dataset.summary import as_text
    from fleet_tools.rollouts.agreement import REPEAT

    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy = find_policy(options.policy)
        header = _header(options, policy)
    collected = collect(
        options.output or Path("data") / header.task.name,
        header,
        partial(make_attempts, policy=policy, verify=options.verify),
        options.episodes,
        options.workers,
        last_job=REPEAT,
        quiet=options.quiet,
    )
    summary = collected.summary
    now, seconds = summary["attempts_now"], summary["seconds"]
    options.report(
        summary,
        lambda: (
            f"{as_text(summary)}\n"
            f"  {now} attempts now, in {seconds:.1f} s: {now / seconds:.2f} per second"
        ),
    )
    return exit_code(collected)


def _header(options: CollectOptions, policy: "PolicySource") -> "Header":
    """Describes the dataset, after checking that it can be collected."""
    from fleet_tools.dataset.collection import describe_collection
    from fleet_tools.envs.spec import EnvSpec

    given = dict(options.env)
    if options.obs_mode:
        given = {"obs_mode": options.obs_mode, **given}
    if "task" in given:
        raise ConfigError("--env cannot set the task. Give --tool or --task.")
    kwargs = {"obs_mode": "state", "robot": options.robot, **policy.env_kwargs, **given}
    spec = EnvSpec.of(options.task.name_or_path(), **kwargs)
    return describe_collection(spec, policy, options.seed, options.keep_failures)


PROGRAM = cli.Program("collect", cli.Command(CollectOptions, _collect))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
