"""Writes the page on the paper's figures: `python docs/results/paper_page.py`.

Its rows are in `paper.yaml`: claims of the paper, the experiments that answer them, verdicts and
conclusions in words. All figures of ours are read from the experiments' stored results.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jinja2
import pydantic

from fleet_tools.baselines.experiments.form import Experiment, label, merged
from fleet_tools.baselines.experiments.page import grid, table_of
from fleet_tools.baselines.experiments.result import read_result
from fleet_tools.config.values import Value, by_dotted_keys, load_yaml
from fleet_tools.errors import ConfigError, require_name

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS, PAGE, TEMPLATE = (HERE / f"paper.{suffix}" for suffix in ("yaml", "md", "md.jinja"))

_NUMBER = re.compile(r"(?<![\w-])\d|%")
"""A number that stands alone; "MT10" and "4a" are names."""

_SIZES = (
    "robots", "models", "agents", "split.alpha", "alpha", "participation", "network", "examples",
    "episodes", "training.epochs", "training.batch_size", "merge_every",
)  # fmt: skip
"""Keys of an experiment's base that are sizes."""
_CALLED = {"bytes": "MB sent, of MB of data", "of_norms": "difference of norms", "last": "return",
           "fine_tuned": "success after fine-tuning"}  # fmt: skip
"""Names of measures in the first table; others have their own."""


def _name(key: str) -> str:
    return key.split(".")[-1].replace("_", " ")


_NAMES = (*dict.fromkeys(map(_name, _SIZES)), "data", "tasks", "scenes", "seeds", "cost")
"""Names of sizes."""


def _without_numbers(words: str) -> str:
    if found := _NUMBER.search(words):
        raise ValueError(f"figures are read from results, not written by hand; found {found[0]!r}")
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
        first: Arms of the first table, which shows the first measure and value.
    """

    experiment: str
    arms: Annotated[dict[str, str], pydantic.Field(min_length=1)]
    measures: tuple[str, ...] = ("success",)
    values: tuple[str, ...] | None = None
    first: tuple[str, ...] = ()

    @property
    def link(self) -> str:
        """Link to the experiment's file."""
        return f"[{self.experiment.removeprefix('experiments/')}](../../{self.experiment}.yaml)"


class PaperRow(Value):
    """A figure, panel, table or claim of the paper.

    Attributes:
        figure: Its number, or a title.
        claim: The paper's claim.
        says: More about the claim.
        size: Sizes of the paper's experiment, by `_NAMES`.
        shown: Our figures.
        verdict: None until it is judged. Only what no experiment asks is "not run".
        why: The verdict's reason; of what was not run, it begins with "because".
    """

    figure: str
    claim: str
    says: str = ""
    size: dict[str, str] = {}
    shown: tuple[Shown, ...] = ()
    verdict: Literal["holds", "holds in part", "does not hold", "not run"] | None = None
    why: Words = ""

    @pydantic.model_validator(mode="after")
    def _is_judged_as_it_was_run(self) -> Self:
        if (self.verdict == "not run") != (not self.shown and self.why.startswith("because ")):
            raise ValueError("`not run` is a row without `shown`, with `why: because ...`")
        return self


class Belief(Value):
    """A conclusion about the paper.

    Attributes:
        sentence: The conclusion, in one sentence.
        rests_on: Figures of the rows on which it rests. Revise it when their verdicts change.
    """

    sentence: Words
    rests_on: tuple[str, ...]


class PaperRows(Value):
    """The page.

    Attributes:
        lead: Its conclusion.
        rows: Its rows.
        believe: Conclusions about the paper.
    """

    lead: Words = ""
    rows: tuple[PaperRow, ...]
    believe: tuple[Belief, ...] = ()


def page(content: PaperRows, root: Path = ROOT) -> str:
    """Returns the page as Markdown.

    Args:
        content: Its rows.
        root: The checkout with the results.

    Raises:
        ConfigError: A row is judged, and no result of it is stored; or there is no such experiment,
            or no figure of a measure.
        UnknownNameError: There is no such arm, value, size or row.
    """
    for belief in content.believe:
        for figure in belief.rests_on:
            require_name("row of a conclusion", figure, [row.figure for row in content.rows])
    sections = [_section(row, root) for row in content.rows]
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    verdicts = Counter(each["verdict"].partition(",")[0] for each in sections)
    values = {"content": content, "sections": sections, "verdicts": verdicts, "names": _NAMES}
    return template.render(values)


def _section(row: PaperRow, root: Path) -> dict[str, Any]:
    """Returns all that the page says about a row."""
    for name in row.size:
        require_name(f"size of the row {row.figure!r}", name, _NAMES)
    stored = []
    for shown in row.shown:
        path = root / f"{shown.experiment}.json"
        if not path.with_suffix(".yaml").is_file():
            raise ConfigError(f"{path.with_suffix('.yaml')} is no experiment of this checkout.")
        if not path.is_file():
            continue
        experiment, result = read_result(path)
        for arm in shown.arms:
            require_name(f"arm of {shown.experiment}", arm, experiment.compared)
        for value in shown.values or ():
            require_name(f"value of {shown.experiment}", value, experiment.cases)
        for arm in shown.first:
            require_name(f"title of {shown.experiment}", arm, shown.arms)
        stored.append((shown, experiment, result))
    if row.verdict not in (None, "not run") and not stored:
        raise ConfigError(
            f"{row.figure!r} is judged, and none of its results is stored. Run its experiments "
            "first, or leave the verdict out."
        )
    verdict = row.verdict or ("not judged" if stored else "not stored yet")
    if verdict == "not run":
        verdict += f", {row.why}"
    sizes = {shown.link: sizes_of(*rest) for shown, *rest in stored}
    return {
        "row": row,
        "verdict": verdict,
        "missing": [each for each in row.shown if each not in [shown for shown, *_ in stored]],
        "first": [_first(*each) for each in stored if each[0].first],
        "sizes": {"the paper": row.size, **sizes} if row.size or sizes else {},
        "tables": [
            (f"{title} ({shown.link})" if len(stored) > 1 else title, lines)
            for shown, *rest in stored
            for title, lines in _tables(shown, *rest)
        ],
    }


def _first(shown: Shown, experiment: Experiment, result: Mapping[str, Any]) -> str:
    """Returns figures for the first table."""
    measure, value = shown.measures[0], (shown.values or tuple(experiment.cases))[0]
    place = f"{_name(experiment.vary or '')} {value}" if value[:1].isdigit() else value
    title = " at ".join(filter(None, [_CALLED.get(measure, _name(measure)), place]))
    rows = [row for row in result["rows"] if row["value"] == value]
    found = {row["arm"]: table_of(measure).entry(row) for row in rows}
    figures = [f"{shown.arms[arm]} {found[arm] or '-'}" for arm in shown.first]
    return f"{shown.link}, {title}: {'; '.join(figures)}"


def _tables(
    shown: Shown, experiment: Experiment, result: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Yields titles and lines of a table for each measure; bytes stand beside other measures."""
    values, arms = shown.values or tuple(experiment.cases), experiment.arms
    rows = [{**row, "bytes": row["arm"] in arms and row.get("bytes")} for row in result["rows"]]
    found = [row for row in rows if row["value"] in values and row["arm"] in shown.arms]
    entry = table_of("bytes").entry
    beside = [(f"MB, {value}", value, entry) for value in values]
    if len({(row["arm"], entry(row)) for row in found}) == len(shown.arms):
        beside = [("MB", values[0], entry)]  # the same for all values
    for measure in [each for each in shown.measures if each != "bytes"] or ["bytes"]:
        table = table_of(measure)
        if not any(map(table.entry, found)):
            raise ConfigError(f"{shown.experiment} has no {measure} of {', '.join(shown.arms)}.")
        columns = [(value or _name(measure), value, table.entry) for value in values]
        if measure != "bytes" and "bytes" in shown.measures:
            columns += beside
        title = table.title.partition(" (")[0]  # the page says which intervals
        if experiment.vary:
            title += f", by {_name(experiment.vary)}"
        lines = grid(columns, shown.arms, rows, without_empty=True)
        yield title, lines


def sizes_of(experiment: Experiment, result: Mapping[str, Any]) -> dict[str, str]:
    """Returns how large an experiment is and what it cost, by `_NAMES`."""
    found: dict[str, dict[str, None]] = {}
    for case in experiment.cases.values():
        keys = by_dotted_keys(merged(experiment.base, case))
        body = [keys.get(f"policy.body.{name}") for name in ("type", "layers", "width")]
        if None not in body:
            keys["network"] = "{} {} x {}".format(*body)
        if keys.get("split.by") == "nothing":  # both robots have all data
            keys.pop("split.alpha", None)
        for key in filter(keys.__contains__, _SIZES):
            text = "one merge" if keys[key] is None else label(keys[key])
            found.setdefault(_name(key), {})[text] = None
    sizes, rows = {name: ", ".join(each) for name, each in found.items()}, result["rows"]
    if data := rows[0].get("data_at_home"):
        sizes["data"] = f"{data / 1e6:.1f} MB"
    sizes["seeds"] = str(max(row["seeds"] for row in rows))
    sizes["cost"] = f"{sum(row['seeds'] for row in rows)} runs"
    scenes = [[count for _, count in row["tasks"].values()] for row in rows if row.get("tasks")]
    if scenes:
        sizes |= {"tasks": str(len(scenes[0])), "scenes": str(sum(scenes[0]))}
        sizes["cost"] += f", {sum(map(sum, scenes)):,} episodes"
    if experiment.lines and experiment.lines.rollouts:
        sizes["scenes"] = f"{experiment.lines.rollouts} of each task"
    return sizes


if __name__ == "__main__":
    PAGE.write_text(page(load_yaml(PaperRows, ROWS)), encoding="utf-8")
