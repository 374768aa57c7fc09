"""A result in words and columns, for people."""

from collections.abc import Iterator

from fleet_tools.evaluation.comparison import Comparison, Difference
from fleet_tools.evaluation.result import Rate, Result, Score


def as_text(result: Result, comparison: Comparison | None = None) -> str:
    """Returns a table of a result's scores, and of its comparison with another, if one is given."""
    scores, protocol = result.scores, result.protocol
    state = "complete" if result.complete else "incomplete"
    lines = [f"{result.policy.name} by {protocol.title} ({result.protocol_digest}), {state}"]
    lines += _table(
        [
            ["task", "split", "success", "95% interval", "at any time", "errors"],
            *(
                [task, split, *_cells(score)]
                for task, strata in scores.strata.items()
                for split, score in strata.items()
            ),
            *([task, "", *_cells(score)] for task, score in scores.tasks.items()),
            *(
                ["", split, *_cells(score)]
                for split, score in scores.splits.items()
                if len(scores.tasks) > 1
            ),
            ["", "", *_cells(scores.total)],
        ]
    )
    if comparison is not None:
        one, other = comparison.first, comparison.second
        lines += ["", f"{one} less {other}, in the same scenes"]
        lines += _table(
            [
                [
                    "task",
                    "scenes",
                    "difference",
                    "95% interval",
                    f"only {one}",
                    f"only {other}",
                    "p",
                ],
                *([task, *_compared(of_task)] for task, of_task in comparison.tasks.items()),
                ["", *_compared(comparison.total)],
            ]
        )
    return "\n".join(lines)


def _cells(score: Score) -> list[str]:
    return [
        _rate(score.end),
        f"{score.end.low:.1%} to {score.end.high:.1%}",
        _rate(score.any_time),
        ", ".join(f"{count} {who}" for who, count in score.errors.items() if count),
    ]


def _rate(rate: Rate) -> str:
    share = "" if rate.rate is None else f" {rate.rate:.1%}"
    return f"{rate.successes}/{rate.trials}{share}"


def _compared(difference: Difference) -> list[str]:
    d = difference
    scenes = d.both + d.only_first + d.only_second + d.neither
    return [
        str(scenes),
        "" if d.difference is None else f"{d.difference:+.1%}",
        f"{d.low:+.1%} to {d.high:+.1%}",
        str(d.only_first),
        str(d.only_second),
        f"{d.p_value:.2g}",
    ]


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()
