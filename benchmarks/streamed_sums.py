"""Times of rounding and sums of changes: `python benchmarks/streamed_sums.py`.

Times are processor milliseconds of this process, medians of several runs. Libraries of linear
algebra use one thread if `OMP_NUM_THREADS=1`.
"""

import sys
from collections.abc import Callable, Iterator

from console import print_now, table_head, table_row
from timing import cpu_seconds

from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

BITS = (8, 4, 2)
COLUMNS = ("bits", "work", "ms", "bytes")


class StreamedSumsOptions(cli.Options):
    """Measures the time of rounding, packing, reading and summing a change.

    Exit codes:
    0: everything is measured.
    2: it cannot begin, or a library is missing.
    """

    weights: Count = 100_000
    """Number of weights of a robot."""
    runs: Count = 5
    """Number of runs of which the median is taken."""


def _measure(options: StreamedSumsOptions) -> int:
    print_now(options, table_head(COLUMNS))
    measured = []
    for bits in BITS:
        for work, milliseconds, size in measurements(options, bits):
            measured.append({"bits": bits, "work": work, "ms": milliseconds, "bytes": size})
            cells = (str(bits), work, f"{milliseconds:.1f}", f"{size:,}" if size else "")
            print_now(options, table_row(cells))
    summary = {"machine": machine_name(), "figures": measured}
    options.report(summary, lambda: f"Measured on {machine_name()}.")
    return cli.OK


def measurements(
    options: StreamedSumsOptions, bits: int
) -> Iterator[tuple[str, float, int | None]]:
    """Yields what was done, its time in milliseconds, and the bytes that a robot sends, if any."""
    import numpy as np

    from fleet_tools.baselines.federated.aggregation import FixedPointSum
    from fleet_tools.baselines.federated.messages import (
        RoundedChange,
        checked_change,
        decode,
        encode,
    )
    from fleet_tools.baselines.federated.quantization import pack, quantize, unpack

    generator = np.random.default_rng(0)
    weights = generator.normal(size=options.weights).astype(np.float32)
    integers = quantize(weights, 4.0, bits, generator)
    packed = pack(integers, bits)
    largest = np.full(1, 4.0, np.float32)
    reply = encode(RoundedChange(1, 100, 0.5, np.frombuffer(packed, np.uint8).copy(), largest))
    total = FixedPointSum.zero(options.weights)

    def read_and_add() -> FixedPointSum:
        change = checked_change(decode(reply), 1, [options.weights], bits)
        return total.plus(change.vector, change.steps)

    timed: dict[str, tuple[Callable[[], object], int | None]] = {
        "quantize": (lambda: quantize(weights, 4.0, bits, generator), None),
        "pack": (lambda: pack(integers, bits), len(packed)),
        "unpack": (lambda: unpack(packed, bits, options.weights), None),
        "read a reply and add it": (read_and_add, len(reply)),
    }
    for work, (function, size) in timed.items():
        yield work, _median_ms(function, options.runs), size


def _median_ms(work: Callable[[], object], runs: int) -> float:
    from statistics import median

    return 1e3 * median(cpu_seconds(work) for _ in range(runs))


PROGRAM = cli.Program(
    "streamed_sums.py", cli.Command(StreamedSumsOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
