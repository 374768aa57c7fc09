"""A kind of input whose trials end in every way there is; other processes import it from here."""

import os
import time
from pathlib import Path

from fuzz.running import Subject, require

from fleet_tools.errors import ConfigError

ENDS = ("read", "refuse", "fail", "take", "die", "hang")


def each_end(folder: Path) -> Subject:
    """Makes inputs by the draw of their number, so that a new process goes on as the old one."""
    return Subject(lambda generator: ENDS[int(generator.integers(len(ENDS)))], _end, _check)


def _check(given: str, value: str) -> None:
    require(value == given, "another value")


def _end(given: str) -> str:
    match given:
        case "refuse":
            raise ConfigError("No.")
        case "fail":
            raise KeyError("no typed error")
        case "take":
            return "other"
        case "die":
            os._exit(3)
        case "hang":
            time.sleep(1000)
    return given
