"""The long run of the fuzzing: `python -m tests.fuzz --trials 100000`."""

import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

if str(Path(__file__).parents[1]) not in sys.path:  # as pytest has it, and processes inherit it
    sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet_tools.config.values import Count, CountOrZero, Seed
from fleet_tools.errors import require_name
from fleet_tools.utils import cli


class FuzzOptions(cli.Options):
    """Gives damaged and made-up input of every kind to its public reader, and counts how that ends.

    Prints a table. A defect (a traceback, the end of the process, input that is silently taken for
    something else, a hang) is named by its kind and number; --kind and --number run this trial
    again, in the process itself, so that the whole traceback is seen.

    Exit codes:
    0: no trial showed a defect.
    1: one did.
    2: it cannot begin.
    130: Ctrl-C.
    """

    trials: Count = 100_000
    """Number of trials, of all kinds together; dear ones have fewer."""
    seed: Seed = 0
    """Seed of all trials."""
    kind: Annotated[tuple[str, ...], arg(metavar="KIND ...")] = ()
    """Kinds of input, by the names in the table (default: all)."""
    number: CountOrZero | None = None
    """Number of the only trial, of one --kind."""
    workers: Count = 1
    """Number of kinds that are tried at the same time."""
    output: Path | None = None
    """File of the table, Markdown."""


def _fuzz(options: FuzzOptions) -> int:
    from fuzz.kinds import KINDS
    from fuzz.running import as_table, distributed, is_clean

    for name in options.kind:
        require_name("kind of input", name, KINDS)
    kinds = [KINDS[name] for name in options.kind or KINDS]
    if options.number is not None:
        return _run_one(options, kinds[0])
    defects: list[dict[str, Any]] = []
    ranges = distributed(kinds, options.trials)
    with ThreadPoolExecutor(options.workers) as pool:
        counts = dict(pool.map(lambda each: _counted(options, each, ranges[each], defects), ranges))
    table = as_table(counts)
    if options.output is not None:
        options.output.write_text(table)
    summary = {"kinds": {name: dict(each) for name, each in counts.items()}, "defects": defects}
    options.report(summary, lambda: table)
    return cli.OK if is_clean(counts) else cli.FAILED


def _counted(
    options: FuzzOptions, kind: Any, numbers: range, defects: list[dict[str, Any]]
) -> tuple[str, Counter]:
    """Returns the name of a kind, and how often its trials had each outcome."""
    import time

    from fuzz.running import DEFECTS, trials

    counts: Counter = Counter()
    started = time.perf_counter()
    for trial in trials(kind, options.seed, numbers):
        counts[trial.outcome] += 1
        if trial.outcome in DEFECTS:
            defects.append({"kind": kind.name, **trial._asdict()})
            _tell(options, f"--kind {kind.name!r} --number {trial.number}: {trial.outcome}: ")
            _tell(options, f"    {trial.detail}")
    seconds = time.perf_counter() - started
    _tell(options, f"{kind.name}: {counts.total():,} trials in {seconds:.0f} s")
    return kind.name, counts


def _tell(options: FuzzOptions, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)


def _run_one(options: FuzzOptions, kind: Any) -> int:
    from fuzz.running import generator_of

    assert options.number is not None
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        subject = kind.open(Path(folder))
        given = subject.make(generator_of(kind.name, options.seed, options.number))
        print(f"given: {given!r:.3000}")
        try:
            subject.check(given, subject.read(given))
        except subject.refusals as error:
            print(f"refused: {error}")
    return cli.OK


PROGRAM = cli.Program("fuzz", cli.Command(FuzzOptions, _fuzz), launcher="python -m tests.")
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
