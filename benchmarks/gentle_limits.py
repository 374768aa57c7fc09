"""The expert's contact metrics in tasks, and the limits of gentle success from these.

`python benchmarks/gentle_limits.py` prints them as lines of the task files. With `--readings` it
prints the errors of forces on object and table.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from scaffold import TaskSelection, expert_steps, main_of, print_now, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.sim import part_motion, world
from fleet_tools.utils import cli

FACTOR = 1.5
"""Limit over the quantile of the expert."""
LEAST = {"object_peak_N": 10.0, "table_peak_N": 10.0, "table_work_J": 0.1}
"""Limits that are gentle for any expert: the weight of a kilogram, N; and J."""
_QUANTILES, _HEADS = (0.5, 0.95, 1.0), ("median", "95%", "largest")


_ERRORS = ("median error", "largest error")
_FORCES = ("object_peak_N", "object_mean_N", "table_peak_N", "table_mean_N")
_SMALLEST_N = 0.1
"""Peaks below are not divided by."""


class GentleLimitsOptions(cli.Options):
    """Prints the expert's contact metrics in fresh scenes of each task, and the limits from these.

    With `--readings`, it prints a row of errors for each force. A reference episode reads contacts
    in every step of the dynamics, and not in every fourth. Errors are relative to the reference's
    peak on object or table. They are the median and the largest one, over the episodes with a peak
    of at least 0.1 N.
    """

    tasks: TaskSelection = TaskSelection()
    scenes: Count = 20
    """Scenes of each task, of all tools and objects."""
    first_seed: Seed = 480_000
    """Seed of the first scene. It is far below 2^52, where the scenes of protocols begin, and
    outside
    of the seeds for training in the documentation."""
    readings: bool = False
    """Print the errors of readings in every fourth step instead."""
    substeps: Count = 1
    """Number of time steps of the dynamics in 4 ms."""
    approximation: Literal["lagged", "similar", "sap"] | None = None
    """Drake's approximation of contact (default: the package's)."""


def _measure(options: GentleLimitsOptions) -> int:
    if options.readings:
        report_rows(options, ["task", "value", "episodes", *_ERRORS], _errors(options))
        return cli.OK
    rows = report_rows(options, ["task", "value", *_HEADS, "limit"], _rows(options))
    seeds, (object_N, _, work_J) = _seeds(options), LEAST.values()
    print_now(
        options,
        f"\n# {FACTOR} times what 95% of the expert's successes stay below, in fresh scenes of all "
        f"tools and objects\n# (seeds {seeds[0]} to {seeds[-1]}), rounded up to two digits; at "
        f"least {object_N:g} N, the weight of a kilogram, and {work_J} J",
    )
    for task in options.tasks.names_or_paths():
        limits = {row["value"]: row["limit"] for row in rows if row["task"] == task}
        line = ", ".join(f"{name}: {limits[name]}" for name in LEAST)
        print_now(options, f"gentle: {{{line}}}  # {task}")
    return cli.OK


def _errors(options: GentleLimitsOptions) -> Iterator[dict[str, Any]]:
    seeds, usual = _seeds(options), part_motion.READING_STEPS
    for task in options.tasks.names_or_paths():
        found = []
        try:
            for steps in (usual, 1):
                part_motion.READING_STEPS = steps
                found.append([*_episodes(task, seeds, options)])
        finally:
            part_motion.READING_STEPS = usual
        pairs = [(one, two) for one, two in zip(*found, strict=True) if one and two]
        for name in _FORCES:
            peak = f"{name.split('_')[0]}_peak_N"
            errors = [
                (one[name] - two[name]) / two[peak]
                for one, two in pairs
                if two[peak] >= _SMALLEST_N
            ]
            if errors:
                cells = [f"{x:+.1%}" for x in (np.median(errors), max(errors, key=abs))]
                row = {"task": task, "value": name, "episodes": len(errors)}
                yield row | dict(zip(_ERRORS, cells, strict=True))


def _seeds(options: GentleLimitsOptions) -> range:
    return range(options.first_seed, options.first_seed + options.scenes)


def _rows(options: GentleLimitsOptions) -> Iterator[dict[str, Any]]:
    seeds = _seeds(options)
    for task in options.tasks.names_or_paths():
        episodes = [each for each in _episodes(task, seeds, options) if each is not None]
        for name in episodes[0]:
            quantiles = np.quantile([each[name] for each in episodes], _QUANTILES)
            limit = None
            if name in LEAST:
                limit = f"{rounded_up(max(LEAST[name], FACTOR * float(quantiles[1]))):g}"
            cells = [f"{value:.3g}" for value in quantiles]
            row = {"task": task, "value": name}
            yield row | dict(zip(_HEADS, cells, strict=True)) | {"limit": limit}


def _episodes(
    task: str, seeds: Sequence[int], options: GentleLimitsOptions
) -> Iterator[dict[str, float] | None]:
    """Yields the contact metrics of each episode of the expert; None without success."""
    world.CONTACT_APPROXIMATION = options.approximation or world.CONTACT_APPROXIMATION
    env = EnvSpec.of(task=task, split="all").make_tool_use()
    env._viewed.substeps = options.substeps  # a benchmark looks inside
    for seed in seeds:
        for _, action in expert_steps(env, [seed]):
            env.step(action)
        yield env.contact_metrics().numbers() if env.get_state().outcome == SUCCESS else None
    env.close()


def rounded_up(value: float) -> float:
    """Returns the least number of two digits that is not below a positive one."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")


main = main_of(__file__, GentleLimitsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
