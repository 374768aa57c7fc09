"""Writes the page on the paper's figures: `python docs/results/paper_page.py`.

Its rows are in `paper.yaml`: claims of the paper, the experiments that answer them, and verdicts in
words. All figures are read from the experiments' stored results.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.page import table_of
from fleet_tools.baselines.experiments.result import Row, read_result
from fleet_tools.config.values import Value, by_dotted_keys, load_yaml
from fleet_tools.errors import ConfigError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS, PAGE = HERE / "paper.yaml", HERE / "paper.md"

_NUMBER = re.compile(r"(?<![\w-])\d|%")
"""A number that stands alone; "MT10" and "4a" are names."""

_UNITS = {"success": "success", "fine_tuned": "after fine-tuning", "bytes": "MB of MB of data"}
"""How measures are called in cells; others are by themselves."""

_SIZES = {
    "robots": "{} robots",
    "models": "{} networks",
    "agents": "{} agents",
    "network": "{}",
    "examples": "{} examples",
    "episodes": "{} episodes",
    "training.epochs": "{} epochs",
    "merge_every": "a merge every {} epochs",
}
"""How sizes are written, by keys of an experiment's base."""


def _without_numbers(words: str) -> str:
    if found := _NUMBER.search(words):
        raise ValueError(
            f"figures are read from results, and not written by hand; found {found[0]!r}"
        )
    return words


Words = Annotated[str, pydantic.AfterValidator(_without_numbers)]
"""Words about our results, without figures."""


class Shown(Value):
    """Figures of one experiment.

    Attributes:
        experiment: Its file below the checkout, without the suffix, such as experiments/paper/4a.
        arms: Titles of the lines, by the name of an arm or a reference.
        measures: Names of what is shown, see `experiments.result`.
        values: Labels of the values that are shown; all if None.
    """

    experiment: str
    arms: Annotated[dict[str, str], pydantic.Field(min_length=1)]
    measures: tuple[str, ...] = ("success",)
    values: tuple[str, ...] | None = None


class PaperRow(Value):
    """A figure, panel, table or claim of the paper.

    Attributes:
        figure: Its number, or a title.
        says: The paper's claim.
        size: Size of the paper's experiment.
        shown: Our figures.
        verdict: None until it is judged. Only what no experiment asks is "not run".
        why: The verdict's reason; of what was not run, it begins with "because".
    """

    figure: str
    says: str
    size: str = "not said"
    shown: tuple[Shown, ...] = ()
    verdict: Literal["holds", "holds in part", "does not hold", "not run"] | None = None
    why: Words = ""

    @pydantic.model_validator(mode="after")
    def _is_judged_as_it_was_run(self) -> Self:
        if (self.verdict == "not run") != (not self.shown):
            raise ValueError("a row is `not run` if and only if `shown` is empty")
        if self.verdict == "not run" and not self.why.startswith("because "):
            raise ValueError("`why` says: because ...")
        return self


class PaperRows(Value):
    """The page.

    Attributes:
        rows: Its rows.
        believe: Conclusions about the paper, a sentence each; none until the experiments have run.
    """

    rows: tuple[PaperRow, ...]
    believe: tuple[Words, ...] = ()


def page(content: PaperRows, root: Path = ROOT) -> str:
    """Returns the page as Markdown.

    Args:
        content: Its rows.
        root: The checkout with the results.

    Raises:
        ConfigError: A row is judged, and no result of it is stored; or a result has no such arm,
            value or measure.
    """
    rows = [_line(each, root) for each in content.rows]
    lines = [
        "# The paper, figure by figure",
        "",
        "**Networks that learned apart merge into one with most of the skills, in one round and "
        "without data. Alignment by permutations is not enough for this.** The last column has "
        "the verdict on each figure and claim.",
        "",
        "- **Held** in [What we found](findings.md): such merges work, also for recurrent "
        "networks. Merging often from a common start works.",
        "- **Did not hold:** in one merge of robots that hardly share a task, Git Re-Basin and "
        "Fleet-Merge solve next to nothing. As many gradients of the weights do far better.",
        "- **Changed the question:** an ensemble is cheaper than any merge. Merge to one size for "
        "robots that cannot run five networks.",
        "",
        "`fleet-tools reproduce paper/4a` makes a figure again. "
        "`python docs/results/paper_page.py` writes this page from stored results and from "
        "verdicts in `paper.yaml`.",
        "",
        "Success rates have 95% intervals over training runs and scenes. Other figures are "
        "medians, with the lowest and the highest. Megabytes count all transfers between robots "
        "and server, beside the size of the robots' data. Robots begin with different weights, "
        "unless a row says `common start`. Figures of the paper without a row show no result.",
        "",
        _cells("figure", "the paper", "here", "size here", "size in the paper", "verdict"),
        _cells(*["---"] * 6),
        *rows,
    ]
    if content.believe:
        lines += ["", "## What to believe of the paper", "", " ".join(content.believe)]
    return "\n".join(lines) + "\n"


def _line(row: PaperRow, root: Path) -> str:
    found = [(each, _stored(root / each.experiment)) for each in row.shown]
    stored = [(each, *result) for each, result in found if result is not None]
    if row.verdict not in (None, "not run") and not stored:
        raise ConfigError(
            f"The row {row.figure!r} says {row.verdict!r}, and none of its results is stored. Run "
            "its experiments first, or leave the verdict out."
        )
    missing = [_missing(each.experiment) for each, result in found if result is None]
    here = [_figures(each, experiment, rows) for each, experiment, rows in stored]
    sizes = [size_of(experiment, rows) for _, experiment, rows in stored]
    verdict = row.verdict or ("not judged" if stored else "not stored")
    reason = "" if not row.why else f", {row.why}" if verdict == "not run" else f": {row.why}"
    return _cells(
        row.figure,
        row.says,
        "<br>".join([*here, *missing]) or "-",
        "<br>".join(dict.fromkeys(sizes)) or "-",
        row.size,
        f"**{verdict}**{reason}",
    )


def _stored(path: Path) -> tuple[Experiment, Sequence[Row]] | None:
    if not path.with_suffix(".yaml").is_file():
        raise ConfigError(f"{path}.yaml is no experiment of this checkout.")
    if not path.with_suffix(".json").is_file():
        return None
    experiment, result = read_result(path.with_suffix(".json"))
    return experiment, result["rows"]


def _link(name: str) -> str:
    return f"[{name.removeprefix('experiments/')}](../../{name}.yaml)"


def _missing(name: str) -> str:
    return f"{_link(name)}: not stored yet"


def _figures(shown: Shown, experiment: Experiment, rows: Sequence[Row]) -> str:
    """Returns the figures of an experiment: a line for each arm and measure."""
    values = shown.values or tuple(experiment.cases)
    found = {(row["arm"], row["value"]): row for row in rows}
    several = f", {experiment.vary or 'case'} {'; '.join(values)}" if len(values) > 1 else ""
    lines = [f"{_link(shown.experiment)}{several}"]
    for measure in shown.measures:
        entry = table_of(measure).entry
        for arm, label in shown.arms.items():
            if missing := [value for value in values if (arm, value) not in found]:
                raise ConfigError(
                    f"{shown.experiment} has no result of {arm!r} with {', '.join(missing)}; it "
                    f"has {', '.join(dict.fromkeys(name for name, _ in found))}."
                )
            entries = [entry(found[arm, value]) for value in values]
            if any(entries):
                called = _UNITS.get(measure, measure.replace("_", " "))
                lines.append(f"{label}, {called}: {'; '.join(each or '-' for each in entries)}")
    if len(lines) == 1:
        raise ConfigError(f"{shown.experiment} has none of {', '.join(shown.measures)}.")
    return "<br>".join(lines)


def size_of(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Returns how large an experiment is, in words; keys that vary are left out."""
    keys = {
        key: value
        for key, value in by_dotted_keys(experiment.base).items()
        if key != experiment.vary
    }
    sizes = [text.format(keys[key]) for key, text in _SIZES.items() if keys.get(key) is not None]
    if {"policy.body.layers", "policy.body.width"} <= keys.keys():
        kind, layers, width = (keys[f"policy.body.{name}"] for name in ("type", "layers", "width"))
        sizes.append(f"{kind} {layers} x {width}")
    if tasks := next((row["tasks"] for row in rows if row.get("tasks")), None):
        scenes = sum(count for _, count in tasks.values())
        sizes += [f"tasks: {len(tasks)}", f"{scenes} episodes a point"]
    seeds = max((row["seeds"] for row in rows), default=0)
    return ", ".join([*sizes, f"seeds: {seeds}"])


def _cells(*entries: str) -> str:
    return f"| {' | '.join(each.replace('|', ' ') for each in entries)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes the page on the paper's figures.")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose results are shown")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page")
    given = parser.parse_args()
    given.output.write_text(page(load_yaml(PaperRows, ROWS), given.checkout), encoding="utf-8")
