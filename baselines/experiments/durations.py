"""How long a recipe takes: as recorded, or at least, from the work that its commands name.

Work is counted without running anything: `for` loops of the commands are unrolled here. What a
demonstration or an episode takes follows from stored seconds of this package's tasks. Nothing
stored says what training takes, or episodes of Meta-World: these are counted, and not timed.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from fleet_tools.baselines.experiments.recipes import RESULTS, Recipe
from fleet_tools.baselines.experiments.reproduction import RECORDS
from fleet_tools.config.tasks import task_names
from fleet_tools.storage import strict_json
from fleet_tools.storage.provenance import Machine

CORES = 2
"""Cores for which a time is estimated. Episodes are independent, and shared evenly."""

_EXPERT = RESULTS / "expert" / "episodes.jsonl"
_FOR = re.compile(r"for (\w+) in (.+)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Duration:
    """What a recipe takes.

    Attributes:
        kind: `measured`, the time of a recorded run; `at least`, an estimate on two cores that
            lacks what `text` names; or `unknown`.
        seconds: The time, s; None if it is unknown.
        text: What was measured or counted.
    """

    kind: str
    seconds: float | None
    text: str

    def __str__(self) -> str:
        """Returns it as a cell of a table."""
        minutes = "" if self.seconds is None else f" {self.seconds / 60:.1f} min"
        return f"{self.kind}{minutes}: {self.text}"


def durations(recipes: Iterable[Recipe], checkout: Path) -> dict[str, Duration]:
    """Returns what recipes of a checkout take, by their names, as far as it is known."""
    expert = _seconds_by_task(checkout / _EXPERT)
    return {recipe.name: _duration(recipe, checkout, expert) for recipe in recipes}


def _duration(recipe: Recipe, checkout: Path, expert: Mapping[str, float]) -> Duration:
    record = checkout / RECORDS / f"{recipe.name}.json"
    if record.is_file():
        return _measured(strict_json.load(record))
    work = _work(recipe, checkout, expert)
    timed = _counted(work.demonstrations, "demonstrations") + _counted(work.episodes, "episodes")
    rest = _counted(work.policies, "policies to train")
    rest += _counted(work.metaworld, "episodes of Meta-World")
    if work.seconds == 0:
        text = " and ".join(timed + rest) or "nothing is stored from which it follows"
        return Duration("unknown", None, text)
    lacks = f"; without {' and '.join(rest)}" if rest else ""
    text = f"{' and '.join(timed)} on {CORES} cores{lacks}"
    return Duration("at least", work.seconds / CORES, text)


def _measured(report: Mapping[str, Any]) -> Duration:
    machine = Machine.model_validate(report["machine"])
    seconds, used = (
        sum(each[name] for each in report["commands"]) for name in ("seconds", "processor_seconds")
    )
    where = f"{machine.processor}, {machine.cores:g} cores"
    text = f"all commands on {where}; {used / 60:.1f} min of processor"
    return Duration("measured", seconds, text)


@dataclass
class _Work:
    """Numbers of what a recipe does, and the seconds that it takes a single core."""

    demonstrations: int = 0
    episodes: int = 0
    metaworld: int = 0
    policies: int = 0
    seconds: float = 0.0


def _work(recipe: Recipe, checkout: Path, expert: Mapping[str, float]) -> _Work:
    work = _Work()
    for words in (each for line in recipe.commands for each in _calls(line)):
        if "fleet_tools.collect" in words:
            asked = _after(words, "--episodes")
            number = int(asked) if asked.isdecimal() else 0
            work.demonstrations += number
            work.seconds += number * expert.get(_after(words, "--tool"), 0.0)
        elif {"fleet_tools.baselines.train", "fleet_tools.baselines.fleet"} & {*words}:
            work.policies += 1
    for stored in (checkout / each for each in recipe.stored.values()):
        if stored.suffix == "" and stored.is_dir():
            seconds = _episodes(stored / "episodes.jsonl")
            work.episodes += len(seconds)
            work.seconds += sum(each for _, each in seconds)
        elif stored.suffix == ".json" and stored.is_file():
            _add_experiment(work, strict_json.load(stored), expert)
    return work


def _add_experiment(work: _Work, result: Mapping[str, Any], expert: Mapping[str, float]) -> None:
    """Adds what the rows of an experiment's result say: policies, and the episodes they acted."""
    tasks = task_names()
    for row in result["rows"]:
        work.policies += row["seeds"]
        for task, (_, number) in (row.get("tasks") or {}).items():
            if task in tasks:
                work.episodes += number
                work.seconds += number * expert.get(task, 0.0)
            else:
                work.metaworld += number


def _calls(line: str) -> Iterator[list[str]]:
    """Yields the words of each command of a line of bash, as often as its loops run it."""
    yield from _unrolled([part.strip() for part in line.split(";")], {})


def _unrolled(parts: list[str], values: dict[str, str]) -> Iterator[list[str]]:
    """Takes parts up to the end of the present loop, and yields their words."""
    while parts:
        part = parts.pop(0).removeprefix("do ").strip()
        if part == "done":
            return
        if match := _FOR.fullmatch(part):
            body = list(parts)
            for value in _words(match[2]) or [""]:
                parts[:] = body
                yield from _unrolled(parts, values | {match[1]: value})
        else:
            yield _words(_VARIABLE.sub(lambda found: values.get(found[1], found[0]), part))


def _words(text: str) -> list[str]:
    """Returns the words of a text of bash; none if a quotation is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _after(words: list[str], option: str) -> str:
    """Returns the value of an option; an empty text if it is not given."""
    return dict(pairwise(words)).get(option, "")


def _episodes(path: Path) -> list[tuple[str, float]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [(each["task"], each["seconds"]) for each in map(strict_json.loads, lines)]


def _seconds_by_task(path: Path) -> dict[str, float]:
    """Returns the mean seconds of stored episodes by task."""
    by_task: dict[str, list[float]] = {}
    for task, seconds in _episodes(path):
        by_task.setdefault(task, []).append(seconds)
    return {task: fmean(seconds) for task, seconds in by_task.items()}


def _counted(number: int, noun: str) -> list[str]:
    return [f"{number} {noun}"] * (number > 0)
