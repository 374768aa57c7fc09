"""Trials in a process of their own, which outlives neither hangs nor its own death unnoticed."""

import contextlib
import multiprocessing
import os
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from fuzz.kernel import DEFECTS, SECONDS, Kind, Outcome, TrialEnd, attempt

PATIENCE = 12.0
"""Longest wall time of a trial over the processor time, on a busy machine."""

_OPENING_S, _DYING_S = 600.0, 1.0
_GIB = 8
"""Largest memory of the data of a process; what needs more raises a MemoryError."""


def trials(
    kind: Kind, seed: int, numbers: range, wait_s: float = PATIENCE * SECONDS
) -> Iterator[TrialEnd]:
    """Runs trials of a kind in another process, a new one after each that it does not survive.

    Args:
        kind: The kind.
        seed: Seed of all trials.
        numbers: Their numbers.
        wait_s: Longest wall time of a trial.
    """
    context = multiprocessing.get_context("spawn")  # no state of this process
    while numbers:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(there, kind, seed, numbers))
        process.start()
        there.close()
        try:
            if not here.poll(_OPENING_S) or here.recv() != "open":
                raise RuntimeError(f"The examples of {kind.name!r} cannot be made.")
            lost = False
            while numbers and not lost:
                received = _received(here, wait_s)
                lost = received is None
                yield received or _lost(process, numbers[0])
                numbers = numbers[1:]
        finally:
            process.kill()
            process.join()
            here.close()


def _received(connection: Connection, wait_s: float) -> TrialEnd | None:
    """Returns the next trial; None if it does not arrive."""
    try:
        return connection.recv() if connection.poll(wait_s) else None
    except EOFError:
        return None


def _lost(process: SpawnProcess, number: int) -> TrialEnd:
    """Returns the trial that a process did not survive, or will not end."""
    process.join(_DYING_S)
    if process.exitcode is None:
        return TrialEnd(number, Outcome.HANG, "it never ended")
    end = f"the process ended with exit code {process.exitcode}"
    return TrialEnd(number, Outcome.TRACEBACK, end)


def _serve(connection: Connection, kind: Kind, seed: int, numbers: range) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_GIB * 2**30, _GIB * 2**30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silent = os.open(os.devnull, os.O_WRONLY)  # libraries in C++ tell what they refuse
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        subject = kind.open(Path(folder))
        connection.send("open")
        for number in numbers:
            connection.send(attempt(kind, subject, seed, number))


def distributed(kinds: Sequence[Kind], count: int) -> dict[Kind, range]:
    """Distributes trials among kinds by their shares; each has one at least."""
    total = sum(kind.share for kind in kinds)
    return {kind: range(max(1, round(count * kind.share / total))) for kind in kinds}


def as_table(counts: Mapping[str, Counter[Outcome]]) -> str:
    """Returns a Markdown table with a row for each kind, and their sum."""
    columns = ["kind of input", "tried", *Outcome]
    rows = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, outcomes in {**counts, "all": sum(counts.values(), Counter())}.items():
        numbers = [outcomes.total(), *(outcomes[each] for each in Outcome)]
        rows.append(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |")
    return "\n".join(rows) + "\n"


def is_clean(counts: Mapping[str, Counter[Outcome]]) -> bool:
    """Whether no trial showed a defect."""
    return not any(outcomes[each] for outcomes in counts.values() for each in DEFECTS)
