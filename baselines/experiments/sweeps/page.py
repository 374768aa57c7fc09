"""The page of a sweep, as Markdown: a table for each thing that was measured, and the figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleet_tools.baselines.experiments.sweeps.sweep import Sweep

Row = Mapping[str, Any]


def page(sweep: Sweep, rows: Sequence[Row], stem: str) -> str:
    """Returns the page.

    Args:
        sweep: The sweep.
        rows: As `sweep.row` has them.
        stem: Of the files' names.
    """
    seeds = f"{sweep.seeds} seed{'s' * (sweep.seeds != 1)}"
    lines = [f"# {stem}", "", f"`{sweep.vary}` varies; {seeds} each ([sweep]({stem}.yaml))."]
    for title, said in _TABLES.items():
        merged_only = said in (_moved, _crossed)  # references do not merge
        cells = {
            (row["arm"], str(row[sweep.vary])): said(row)
            for row in rows
            if row["arm"] in sweep.arms or not merged_only
        }
        if not any(cells.values()):
            continue
        lines += ["", f"## {title}", "", _table_row(["", *map(str, sweep.values)])]
        lines.append(_table_row(["---"] * (1 + len(sweep.values))))
        for arm in (*sweep.arms, *(() if merged_only else sweep.references)):
            found = [cells.get((arm, str(value))) or "-" for value in sweep.values]
            lines.append(_table_row([arm, *found]))
    lines += ["", f"![What came of it]({stem}.png)"]
    lines += ["", f"![Over the bytes that crossed, round by round]({stem}_bytes.png)"]
    return "\n".join(lines) + "\n"


def _rate(success: Mapping[str, float] | None) -> str | None:
    return success and f"{success['rate']:.0%} ({success['low']:.0%} to {success['high']:.0%})"


def _loss(row: Row) -> str | None:
    loss = row["loss"]
    return loss and f"{loss['median']:.4f} ({loss['low']:.4f} to {loss['high']:.4f})"


def _moved(row: Row) -> str | None:
    shares = [point["moved"] for point in row["curve"]]
    known = [f"{share:.0%}" for share in (shares[:1] + shares[-1:]) if share is not None]
    return " then ".join(dict.fromkeys(known)) if any(shares) else None


def _crossed(row: Row) -> str | None:
    return row["bytes"] and f"{row['bytes'] / 1e6:.1f} of {row['data_at_home'] / 1e6:.1f}"


_TABLES: dict[str, Callable[[Row], str | None]] = {
    "Scenes solved (95% over trainings and scenes)": lambda row: _rate(row["success"]),
    "Scenes solved after fine-tuning": lambda row: _rate(row["fine_tuned"]),
    "Held-out loss (median, lowest and highest of seeds)": _loss,
    "Units that alignment moved, in the first and the last round": _moved,
    "MB that crossed, of MB of data at home": _crossed,
}


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
