"""Merges fleets of linear controllers: `python benchmarks/linear_control.py --seeds 5`."""

import math
import sys

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.progress import progress_bar

Table = dict[str, dict[str, list[float]]]
"""Relative costs over seeds, ascending, by fleet and method."""


class LinearControlOptions(cli.Options):
    """Merges fleets of linear controllers and prints what the merged controllers cost.

    The numbers are J / J*, averaged over the tasks of a fleet: the median over seeds, then the
    lowest and the highest; inf (null with --json) if a plant is not stabilized.

    Exit codes:
    0: all fleets are merged.
    2: it cannot begin.
    130: Ctrl-C.
    """

    seeds: Count = 3
    """Number of seeds."""


def _compare(options: LinearControlOptions) -> int:
    from linear_control_fleets import FLEETS, relative_costs

    table: Table = {}
    with progress_bar(len(FLEETS) * options.seeds, "fleet", quiet=options.quiet) as bar:
        for title, make in FLEETS.items():
            costs: dict[str, list[float]] = {}
            for seed in range(options.seeds):
                for name, value in relative_costs(make(seed)).items():
                    costs.setdefault(name, []).append(value)
                bar.update()
            table[title] = {name: sorted(values) for name, values in costs.items()}
    summary = {"seeds": options.seeds, "relative_costs": _without_infinity(table)}
    options.report(summary, lambda: _as_text(table))
    return cli.OK


def _without_infinity(table: Table) -> dict[str, dict[str, list[float | None]]]:
    """Returns the table with None in place of infinity, which JSON does not have."""
    return {
        title: {
            name: [value if math.isfinite(value) else None for value in values]
            for name, values in costs.items()
        }
        for title, costs in table.items()
    }


def _as_text(table: Table) -> str:
    lines = []
    for title, costs in table.items():
        lines.append(title)
        for name, values in costs.items():
            median = values[len(values) // 2]
            lines.append(f"  {name:27s} {median:10.5f}  ({values[0]:.5f} to {values[-1]:.5f})")
    return "\n".join(lines)


PROGRAM = cli.Program(
    "linear_control.py", cli.Command(LinearControlOptions, _compare), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
