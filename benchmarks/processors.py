"""Episodes on other processors: `python benchmarks/processors.py results/expert`.

python benchmarks/processors.py results/expert results/random --emulated
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from scaffold import (
    AGREEMENT_COLUMNS,
    Child,
    agreement_cells,
    main_of,
    print_now,
    table_head,
    table_row,
)
from tyro.conf import Positional, arg

from fleet_tools.config.values import Count, NonNegative
from fleet_tools.errors import FleetToolsError
from fleet_tools.utils import cli

_HEADER = table_head(["processor", "kernels with other bits", *AGREEMENT_COLUMNS])


class ProcessorsOptions(cli.Options):
    """Runs stored actions of results again as other processors would, and compares with this one.

    Prints a row for each kind of processor: which libraries compute other bits there, in how many
    episodes the last state has the same bits, how many end alike (outcome and steps), how many of
    these with a last state within a distance, and the largest distance.

    Exit codes:
    0: all episodes end alike.
    1: an episode ends otherwise.
    2: it cannot begin.
    130: Ctrl-C.
    """

    results: Annotated[tuple[Path, ...], Positional, arg(metavar="RESULT")]
    """Folders of results."""
    episodes: Count = 1
    """Number of episodes of each task from each result."""
    within: NonNegative = 0.001
    """Distance, m, up to which the last states of episodes that end alike count as the same."""
    emulated: bool = False
    """Also emulate processors, by qemu-x86_64 (Debian: qemu-user); 10 to 50 times slower."""


def _compare(options: ProcessorsOptions) -> int:
    from processor_kinds import EMULATED, OTHER_BITS, SAME_BITS, Kind

    from fleet_tools.evaluation.result import EpisodeResult
    from fleet_tools.evaluation.trial import judge
    from fleet_tools.rollouts.agreement import counts

    if options.emulated and shutil.which("qemu-x86_64") is None:
        raise FleetToolsError("There is no qemu-x86_64. Install it (Debian: qemu-user).")
    kinds = SAME_BITS | OTHER_BITS | (EMULATED if options.emulated else {})
    here = _replay(Kind(), options)
    stored = [EpisodeResult.model_validate_json(line) for line in here["episodes"]]
    print_now(options, _HEADER)
    rows: list[dict[str, Any]] = []
    for name, kind in kinds.items():
        there = _replay(kind, options)
        again = [EpisodeResult.model_validate_json(line) for line in there["episodes"]]
        verdicts = [judge(*pair) for pair in zip(stored, again, strict=True)]
        other = [key for key, bits in here["kernels"].items() if there["kernels"][key] != bits]
        found = counts((verdict.agreement for verdict in verdicts), options.within)
        rows.append({"processor": name, "other_kernels": other, **found})
        print_now(options, _as_text(rows[-1]))
    if options.json_output:
        options.report({"rows": rows}, str)
    alike = all(row["same_outcome"] == row["episodes"] for row in rows)
    return cli.OK if alike else cli.FAILED


def _replay(kind: Any, options: ProcessorsOptions) -> dict[str, Any]:
    """Returns what `processor_replays.py` prints in a process of this kind."""
    arguments = [str(options.episodes), *map(str, options.results)]
    with Child(
        "processor_replays.py", arguments, launcher=kind.command, variables=kind.variables
    ) as child:
        return child.answer()


def _as_text(row: dict[str, Any]) -> str:
    other = ", ".join(row["other_kernels"]) or "none"
    return table_row([row["processor"], other, *agreement_cells(row)])


main = main_of(__file__, ProcessorsOptions, _compare)

if __name__ == "__main__":
    sys.exit(main())
