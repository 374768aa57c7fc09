"""Measures how the arm keeps its joint limits: `python benchmarks/limits.py`."""

import sys
from typing import Any, get_args

from console import print_now, table_row
from task_selection import TaskSelection

from fleet_tools.config.values import Count, Seed
from fleet_tools.utils import cli

_HEADER = (
    "| task | actions | speed, peak | untouched | 99% | torque, peak | 99% | beyond range, rad | "
    f"touched |\n|{'---|' * 9}"
)


class LimitsOptions(cli.Options):
    """Measures how the arm keeps its declared joint limits under random and extreme actions.

    Prints a row for each task and kind of action: the largest speed and torque of any joint in any
    simulation step, over the declared limits; the largest speed while nothing touches arm, hand or
    tool; how far a joint is beyond its range, negative within it; and the share of the time in
    which something touches the arm. A contact can push a joint faster than any control may.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    episodes: Count = 10
    """Number of episodes of each row."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""


def _measure(options: LimitsOptions) -> int:
    from joint_limits import ActionKind

    from fleet_tools.envs.spec import EnvSpec

    rows: list[dict[str, Any]] = []
    print_now(options, _HEADER)
    for task in options.tasks.names_or_paths():
        env = EnvSpec.of(task=task, split="all").make_tool_use()
        for kind in get_args(ActionKind):
            row = {"task": task, "actions": kind, **measure(env, kind, options)}
            rows.append(row)
            cells = [f"{cell:.3f}" if isinstance(cell, float) else cell for cell in row.values()]
            print_now(options, table_row(cells))
        env.close()
    if options.json_output:
        options.report({"rows": rows}, str)
    return cli.OK


def measure(env: Any, kind: Any, options: LimitsOptions) -> dict[str, float]:
    """Returns the figures of a row."""
    import numpy as np
    from joint_limits import joint_history

    seeds = range(options.first_seed, options.first_seed + options.episodes)
    histories = [joint_history(env, kind, seed) for seed in seeds]
    speed = np.concatenate([history.speed.max(axis=1) for history in histories])
    torque = np.concatenate([history.torque.max(axis=1) for history in histories])
    touched = np.concatenate([history.touched for history in histories])
    return {
        "speed_peak": float(speed.max()),
        "speed_peak_untouched": float(speed[~touched].max(initial=0.0)),
        "speed_p99": float(np.percentile(speed, 99)),
        "torque_peak": float(torque.max()),
        "torque_p99": float(np.percentile(torque, 99)),
        "beyond_range_rad": float(max(history.beyond.max() for history in histories)),
        "touched": float(touched.mean()),
    }


PROGRAM = cli.Program(
    "limits.py", cli.Command(LimitsOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
