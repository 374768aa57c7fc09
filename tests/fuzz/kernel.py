"""What fuzzing is: inputs made of random numbers, given to their public readers, and how that ends.

A trial is named by its kind of input, a seed and a number, from which it can be made again.
"""

import json
import time
import traceback
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
    refusals: tuple[type[Exception], ...] = (FleetToolsError,)
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
