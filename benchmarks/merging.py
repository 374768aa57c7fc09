"""Measures the speed and quality of matching: `python benchmarks/merging.py`.

It is compared with plain Git Re-Basin, and with libraries if their environments are given:

    python benchmarks/merging.py --rebasin-python PATH --mergekit-python PATH

Times are processor seconds of one thread, the best of several runs, which hardly depend on the
machine's load. The matched networks have learned the same teacher from different initial weights,
or are permuted copies; the objective is the sum of products of the weights, the larger the better.
"""

import sys
from pathlib import Path
from typing import Any

from console import print_now

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name


class MergingOptions(cli.Options):
    """Measures the speed and quality of matching.

    Exit codes:
    0: everything is measured.
    1: another library failed.
    2: it cannot begin.
    """

    rebasin_python: Path | None = None
    """Python interpreter of an environment with `rebasin`."""
    sinkhorn_rebasin_python: Path | None = None
    """Python interpreter of an environment with `sinkhorn-rebasin`."""
    mergekit_python: Path | None = None
    """Python interpreter of an environment with `mergekit`."""
    widths: tuple[Count, ...] = (256, 512, 1024, 2048)
    """Widths of untrained networks."""
    models: tuple[Count, ...] = (10, 100)
    """Numbers of models that are merged; 1000 take minutes."""


def _measure(options: MergingOptions) -> int:
    import torch
    from merging_measurements import measurements

    torch.set_num_threads(1)
    measured: list[dict[str, Any]] = []
    for case, method, figures in measurements(options):
        measured.append({"case": case, "method": method, **figures})
        print_now(options, _as_text(case, method, figures))
    options.report(
        {"machine": machine_name(), "figures": measured}, lambda: f"Measured on {machine_name()}."
    )
    return cli.OK


def _as_text(case: str, method: str, figures: dict[str, float]) -> str:
    others = "".join(
        f"  {name.replace('_', ' ')} {value:.1f}"
        for name, value in figures.items()
        if name != "seconds"
    )
    return f"{case:>28}  {method:<24} {1e3 * figures['seconds']:9.1f} ms{others}"


PROGRAM = cli.Program(
    "merging.py", cli.Command(MergingOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
