"""Functions and files of the project that one round of a fleet in this process passes.

    fleet-tools collect hammer --episodes 20 --output data/hammer
    python benchmarks/traced_round.py --data data/hammer

Counted are distinct functions (see `tracing.traced`) in the first round, which opens the robots'
data, and in the second.
"""

import sys
from pathlib import Path
from typing import Any

from scaffold import main_of, print_now, table_head, table_row
from tracing import traced

from fleet_tools.utils import cli

COLUMNS = ("method", "round", "functions", "files", "of the fleet's own room")


class TracedRoundOptions(cli.Options):
    """Counts the functions that a round of a fleet of three passes.

    Exit codes:
    0: all are counted.
    2: it cannot begin.
    """

    data: Path
    """Folder of a dataset."""
    methods: tuple[str, ...] = ("naive_average", "git_rebasin", "fleet_merge")
    """Merging methods."""


def _measure(options: TracedRoundOptions) -> int:
    import torch

    from fleet_tools.baselines.federated.config import FleetConfig
    from fleet_tools.baselines.federated.plan import FleetPlan
    from fleet_tools.baselines.federated.rounds import run_round
    from fleet_tools.baselines.federated.transport import LocalTransport
    from fleet_tools.config.values import parse

    torch.set_num_threads(1)  # as robots do
    print_now(options, table_head(COLUMNS))
    counted = []
    for method in options.methods:
        settings: dict[str, Any] = {
            "data": [str(options.data)],
            "policy": {"body": {"type": "mlp", "layers": 2, "width": 8}},
            "method": method,
            "options": {"epochs": 1, "steps": 3} if method == "fleet_merge" else {},
            "robots": 3,
            "split": {"by": "nothing"},
            "training": {"epochs": 2, "batch_size": 64},
            "merge_every": 1,
        }
        plan = FleetPlan.of(parse(FleetConfig, settings, "The benchmark"))
        transport, weights = LocalTransport(plan.assignments), None
        for number in (1, 2):
            results = []
            seen = traced(lambda: results.append(run_round(plan, transport, number, weights)))  # noqa: B023
            weights = results[0].weights
            own = [name for name in seen if name[0].startswith("baselines/federated")]
            row = (method, number, len(seen), len({path for path, _ in seen}), len(own))
            counted.append(dict(zip(COLUMNS, row, strict=True)))
            print_now(options, table_row([str(cell) for cell in row]))
    options.report({"rounds": counted}, lambda: "Functions that a round passes.")
    return cli.OK


main = main_of(__file__, TracedRoundOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
