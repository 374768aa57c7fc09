"""Trials: what one is, and many in a process that outlives neither hangs nor its own death."""

import contextlib
import json
import multiprocessing
import os
import resource
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleet_merging.errors import MergingError
from fleet_tools.errors import FleetToolsError

SECONDS = 10.0
"""Longest processor time of a trial; a longer one hangs."""


class Outcome(StrEnum):
    """How a trial ends; the last three are defects."""

    ACCEPTED = "accepted"
    """Read as what it says."""
    TYPED = "typed error"
    """Refused by an error that the reader promises."""
    TRACEBACK = "traceback"
    """Any other error, or the end of the process."""
    TAKEN = "silently taken"
    """Read as something that the reader's contract rules out."""
    HANG = "hang"
    """Read for longer than `SECONDS`."""


DEFECTS = (Outcome.TRACEBACK, Outcome.TAKEN, Outcome.HANG)


class SilentlyTaken(AssertionError):  # noqa: N818
    """What was read violates the reader's contract."""


def require(condition: object, broken: str) -> None:
    """Checks a part of a reader's contract.

    Args:
        condition: Whether it holds.
        broken: What is wrong where it does not.

    Raises:
        SilentlyTaken: It does not hold.
    """
    if not condition:
        raise SilentlyTaken(broken)


def require_same_after_json(value: Any) -> None:
    """Checks that a value is the same after its way through JSON."""
    text = value.to_json()
    json.loads(text, parse_constant=lambda number: require(False, f"a number is {number}"))
    again = type(value).model_validate_json(text)
    require(again == value, f"{type(value).__name__} changes on its way through JSON")


@dataclass(frozen=True)
class Subject:
    """A reader, and inputs for it.

    Attributes:
        make: Makes an input of random numbers, mostly from a stored example.
        read: Reads an input with the public reader, and returns what was read.
        check: Raises `SilentlyTaken` where an input must not be read as that: what is not finite,
            has another shape, differs from the input, or from the unharmed example in spite of a
            digest. What it lets pass is legal by its own content, and accepted.
        refusals: Classes of the errors that the reader promises.
        close: Releases what the reader holds.
    """

    make: Callable[[np.random.Generator], Any]
    read: Callable[[Any], Any]
    check: Callable[[Any, Any], None]
    refusals: tuple[type[Exception], ...] = (FleetToolsError, MergingError)
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        name: Name in the table.
        open: Stores examples in an empty folder, and returns the subject.
        share: Share of a long run's trials, over the sum of the shares of all kinds; dear trials
            have small ones.
        quick: Number of trials in the suite.
    """

    name: str
    open: Callable[[Path], Subject]
    share: float
    quick: int


class TrialEnd(NamedTuple):
    """How a trial ended.

    Attributes:
        number: Its number.
        outcome: Its outcome.
        detail: Of a defect, what happened.
    """

    number: int
    outcome: Outcome
    detail: str = ""


def generator_of(name: str, seed: int, number: int) -> np.random.Generator:
    """Returns the generator of a trial, which depends on no other trial."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), number])


def attempt(kind: Kind, subject: Subject, seed: int, number: int) -> TrialEnd:
    """Runs a trial in this process."""
    given = subject.make(generator_of(kind.name, seed, number))
    started = time.process_time()
    outcome, detail = _outcome(subject, given)
    if (seconds := time.process_time() - started) > SECONDS:
        outcome, detail = Outcome.HANG, f"{seconds:.1f} s of processor time"
    return TrialEnd(number, outcome, detail)


def _outcome(subject: Subject, given: Any) -> tuple[Outcome, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            subject.check(given, subject.read(given))
        except subject.refusals:
            return Outcome.TYPED, ""
        except SilentlyTaken as broken:
            return Outcome.TAKEN, str(broken)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            return Outcome.TRACEBACK, f"{type(error).__name__}: {error!s:.300} ({place})"
    return Outcome.ACCEPTED, ""


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
