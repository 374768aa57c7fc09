"""Times of rounding, sums, masks and their removal: `python benchmarks/private_sums.py`.

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


class PrivateSumsOptions(cli.Options):
    """Measures the time of rounding, sums, masks and their removal.

    Exit codes:
    0: everything is measured.
    2: it cannot begin, or a library is missing.
    """

    weights: Count = 100_000
    """Number of weights of a robot."""
    neighbours: Count = 20
    """Number of neighbours of a robot."""
    participants: Count = 500
    """Number of robots of a round, of which a tenth is lost."""
    runs: Count = 5
    """Number of runs of which the median is taken."""


def _measure(options: PrivateSumsOptions) -> int:
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


def measurements(options: PrivateSumsOptions, bits: int) -> Iterator[tuple[str, float, int | None]]:
    """Yields what was done, its time in milliseconds, and the bytes that a robot sends, if any."""
    import numpy as np

    from fleet_tools.baselines.federated.messages import LocalUpdate
    from fleet_tools.baselines.federated.privacy.bit_packing import pack, unpack
    from fleet_tools.baselines.federated.privacy.masks import (
        mask,
        modulus_bits,
        neighbours,
        public_key,
        reveal,
        unmask,
    )
    from fleet_tools.baselines.federated.privacy.modular import reduce
    from fleet_tools.baselines.federated.privacy.quantization import quantize
    from fleet_tools.baselines.federated.streaming.messages import decode_rounded, encode_rounded
    from fleet_tools.baselines.federated.streaming.sums import FixedPointSum

    generator = np.random.default_rng(0)
    weights = generator.normal(size=options.weights).astype(np.float32)
    modulus = modulus_bits(bits, options.participants)
    graph = neighbours(range(options.participants), options.neighbours, 0)
    secrets = {robot: generator.bytes(32) for robot in graph}
    keys = {robot: public_key(secret) for robot, secret in secrets.items()}
    of_neighbours = {robot: {other: keys[other] for other in graph[robot]} for robot in graph}

    def masked(robot: int) -> np.ndarray:
        return mask(
            integers,
            modulus,
            robot=robot,
            secret=secrets[robot],
            public_keys=of_neighbours[robot],
            round_number=0,
        )

    integers = quantize(weights, 4.0, bits, generator)
    plain = pack(reduce(integers, bits), bits)
    largest = np.full(1, 4.0, np.float32)
    reply = encode_rounded(LocalUpdate(1, 100, 0.5, {}), integers, largest, bits)
    total = FixedPointSum.zero(options.weights)

    def read_and_add() -> FixedPointSum:
        change = decode_rounded(reply, 1, [options.weights], bits)
        return total.plus(change.vector, change.steps)

    answer = masked(0)
    packed = pack(answer, modulus)
    timed: dict[str, tuple[Callable[[], object], int | None]] = {
        "quantize": (lambda: quantize(weights, 4.0, bits, generator), None),
        "pack": (lambda: pack(reduce(integers, bits), bits), len(plain)),
        "unpack": (lambda: unpack(plain, bits, options.weights), None),
        "read a reply and add it": (read_and_add, len(reply)),
        f"mask, {len(graph[0])} neighbours": (lambda: masked(0), None),
        f"pack at {modulus} bits": (lambda: pack(answer, modulus), len(packed)),
        f"unpack at {modulus} bits": (lambda: unpack(packed, modulus, options.weights), None),
    }
    for work, (function, size) in timed.items():
        yield work, _median_ms(function, options.runs), size

    lost = set(list(graph)[: options.participants // 10])
    reveals = [
        reveal(
            lost & set(graph[robot]),
            robot=robot,
            secret=secrets[robot],
            public_keys=of_neighbours[robot],
            round_number=0,
        )
        for robot in set(graph) - lost
    ]
    milliseconds = _median_ms(lambda: unmask(answer, modulus, reveals), 1)
    yield f"unmask, {len(lost)} of {options.participants} lost", milliseconds, None


def _median_ms(work: Callable[[], object], runs: int) -> float:
    from statistics import median

    return 1e3 * median(cpu_seconds(work) for _ in range(runs))


PROGRAM = cli.Program(
    "private_sums.py", cli.Command(PrivateSumsOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
