"""Runs a recipe in a separate folder, and compares its results with the stored ones.

The same kind of processor with the same versions must give the same bits. Elsewhere, success rates
are compared: of an evaluation scene by scene, by the score test of `evaluate --against`; of an
experiment by their intervals.
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import fleet_tools
from fleet_tools.baselines.experiments.recipes import DATA, LINKED, Recipe
from fleet_tools.config.commands import arguments
from fleet_tools.errors import ConfigError, known_errors
from fleet_tools.storage import strict_json
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.provenance import Machine, installed_packages

if TYPE_CHECKING:
    from fleet_tools.evaluation.result import EpisodeResult, Result

REPORT = "reproduced.json"
"""The commands with their times, and the comparisons of new with stored results."""

_STDERR = 2  # of the process: this one's stdout is kept for results
_SLACK = 0.01  # relative distance that spreads over seeds may miss each other by
_LEVEL = 0.05  # of the test of differences between evaluations


@dataclass(frozen=True)
class Reproduced:
    """Comparison of a stored result with a new one.

    Attributes:
        path: The stored result, within the checkout.
        promised: Whether the same bits are promised here; None if the stored result does not
            describe its machine.
        identical: Number of episodes, of runs of an experiment, or of figures with the same bits.
        compared: Number of these in both.
        text: The comparison of success rates, or the missing parts.
        agrees: Whether all bits agree; or if they are not promised, the success rates.
    """

    path: str
    promised: bool | None
    identical: int
    compared: int
    text: str
    agrees: bool


def prepare(recipe: Recipe, checkout: Path, folder: Path) -> dict[str, Any]:
    """Makes the folder in which the commands of a recipe run; returns the report so far.

    It links to the inputs of commands in the checkout, and to the data of all entries.

    Raises:
        ConfigError: It is the folder of another recipe, or lies inside a linked folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    links = {name: checkout / name for name in LINKED}
    if recipe.kind == "entry":
        links[DATA] = folder.parent / DATA
        links[DATA].mkdir(exist_ok=True)
    for name, path in links.items():
        if (folder / name).resolve() != path.resolve():
            if (folder / name).exists():
                raise ConfigError(f"{folder / name} is in the way. Give another --output.")
            (folder / name).symlink_to(path.resolve())
    path = folder / REPORT
    report = strict_json.load(path) if path.is_file() else {"name": recipe.name, "commands": []}
    here = {"machine": Machine.here().model_dump(), "packages": installed_packages()}
    if (
        report["name"] != recipe.name
        or report.get("packages", here["packages"]) != here["packages"]
    ):
        raise ConfigError(
            f"{folder} has results of {report['name']} made with {report['packages']}. Give "
            "another --output, or remove it."
        )
    return report | here


def run(recipe: Recipe, folder: Path, report: dict[str, Any], say: Callable[[str], None]) -> int:
    """Runs all remaining commands; returns the exit code of the first that fails, or 0.

    Their times are added to the report, in s, also after a command was stopped and resumed.

    Args:
        recipe: The recipe.
        folder: A prepared folder.
        report: Its report, which is stored after each command.
        say: Called with each command before it runs, and with its time afterwards.
    """
    here = str(Path(fleet_tools.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    done = {each["command"]: each for each in report["commands"]}
    for words in recipe.commands:
        command = shlex.join(words)
        entry = done.setdefault(command, {"command": command, "seconds": 0.0, "code": None})
        if entry["code"] == 0:
            continue
        say(f"+ {command}")
        started = time.monotonic()
        try:
            entry["code"] = subprocess.run(
                arguments(words, folder),
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                stdout=_STDERR,
            ).returncode
        finally:
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - started, 2)
            report["commands"] = list(done.values())
            store(report, folder)
        say(f"{entry['seconds'] / 60:.1f} min")
        if entry["code"] != 0:
            return entry["code"]
    return 0


def store(report: Mapping[str, Any], folder: Path) -> None:
    """Writes the report of a folder."""
    write_file(folder / REPORT, json.dumps(report, indent=1) + "\n")


def compare_all(recipe: Recipe, checkout: Path, folder: Path) -> list[Reproduced]:
    """Compares the results of a recipe with the stored ones, if any."""
    found = []
    for made, stored in recipe.stored.items():
        if not (checkout / stored).exists():
            continue
        try:
            found.append(_compare(stored, checkout / stored, folder / made))
        except (*known_errors(), OSError) as error:
            found.append(Reproduced(str(stored), None, 0, 0, str(error), False))
    return found


def _compare(name: Path, stored: Path, made: Path) -> Reproduced:
    if name.suffix == ".json":
        return _compare_experiments(name, stored, made)
    if name.suffix in (".png", ".md"):
        same = stored.read_bytes() == made.read_bytes()
        text = "the same file" if same else "another file; its experiments say whether it agrees"
        return Reproduced(str(name), None, int(same), 1, text, True)
    return _compare_evaluations(name, stored, made)


def _compare_evaluations(name: Path, stored: Path, made: Path) -> Reproduced:
    from fleet_tools.evaluation.result_folder import load_evaluation
    from fleet_tools.evaluation.scores import compare

    one, other = load_evaluation(stored), load_evaluation(made)
    promised = _promised(one.result, other.result)
    again = {episode.key: _bits(episode) for episode in other.episodes}
    pairs = [(_bits(each), again[each.key]) for each in one.episodes if each.key in again]
    identical = sum(then == now for then, now in pairs)
    difference = compare(other, one).total
    old, new = (sum(e.success for e in each.episodes) for each in (one, other))
    text = (
        f"{new} of {len(other.episodes)} episodes solved, stored {old} of {len(one.episodes)}; "
        f"difference {difference.difference or 0:+.1%} ({difference.low:+.1%} to "
        f"{difference.high:+.1%}), p = {difference.p_value:.3g}"
    )
    alike = identical == len(pairs) or (not promised and difference.p_value >= _LEVEL)
    agrees = alike and len(pairs) == len(one.episodes)
    return Reproduced(str(name), promised, identical, len(pairs), text, agrees)


def _promised(stored: "Result", made: "Result") -> bool | None:
    """Returns whether two results have the same bits by promise; None if it is not known.

    Processors of one name may have other vector instructions, which older results lack.
    """
    if stored.packages != made.packages or stored.machine.differences(made.machine):
        return False
    return True if stored.machine.instructions else None


def _bits(episode: "EpisodeResult") -> tuple[Any, ...]:
    return episode.outcome, episode.steps, episode.state_digest, episode.actions


def _compare_experiments(name: Path, stored: Path, made: Path) -> Reproduced:
    from fleet_tools.baselines.experiments.result import changes, read_result

    (before, old), (now, new) = read_result(stored), read_result(made)
    cells = {_place(each): each for each in new["cells"]}
    pairs = [(each, cells[_place(each)]) for each in old["cells"] if _place(each) in cells]
    identical = sum(then == again for then, again in pairs)
    rows = {_case(row): row for row in new["rows"]}
    problems = changes(before, now)
    for row in old["rows"]:
        case = ", ".join(_case(row))
        if (again := rows.get(_case(row))) is None:
            problems.append(f"{case} is lacking")
        else:
            problems += [f"{case}: {each}" for each in _apart(row, again)]
    text = "; ".join(problems) or f"{len(rows)} rows agree within their intervals"
    return Reproduced(str(name), None, identical, len(pairs), text, not problems)


def _apart(row: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Yields the differing measures of two rows: intervals of success rates, else all spreads."""
    names = ["success"] if row.get("success") else [each for each in row if _is_spread(row[each])]
    for name in names:
        then, now = row[name], again.get(name)
        if not _is_spread(now):
            yield f"{name} is lacking"
            continue
        slack = 0.0 if name == "success" else _SLACK * max(map(abs, (then["low"], then["high"])))
        if now["low"] > then["high"] + slack or now["high"] < then["low"] - slack:
            ends = (f"{each['low']:.3g} to {each['high']:.3g}" for each in (now, then))
            yield f"{name} {', stored '.join(ends)}"


def _is_spread(measure: object) -> TypeGuard[Mapping[str, float]]:
    """Whether a measure has finite ends; infinite ends are None in JSON."""
    ends = [measure.get(name) for name in ("low", "high")] if isinstance(measure, Mapping) else []
    return bool(ends) and all(isinstance(end, int | float) for end in ends)


def _case(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["arm"], row["value"]


def _place(cell: Mapping[str, Any]) -> tuple[str, str, int]:
    return *_case(cell), cell["seed"]
