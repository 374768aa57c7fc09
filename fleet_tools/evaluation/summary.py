"""A result as text."""

from collections.abc import Iterator

from fleet_tools.evaluation.result import Rate, Result, Score
from fleet_tools.evaluation.scores import Comparison, SuccessDifference


def as_text(result: Result, comparison: Comparison | None = None) -> str:
    """Returns a table of a result's scores.

    Args:
        result: The result, with scores.
        comparison: Its comparison with another one, for a second table.
    """
    scores, protocol = result.scores, result.protocol
    state = "complete" if result.complete else "incomplete"
    lines = [
        f"{result.policy.label}, protocol {protocol.title} ({result.protocol_digest}), {state}"
    ]
    if scores is None:
        return lines[0]
    lines += _table(
        [
            ["task", "split", "success", "95% interval", "success once", "errors"],
            *(
                [task, split, *_cells(score)]
                for task, strata in scores.strata.items()
                for split, score in strata.items()
            ),
            *([task, "all", *_cells(score)] for task, score in scores.tasks.items()),
            *(
                ["all", split, *_cells(score)]
                for split, score in scores.splits.items()
                if len(scores.tasks) > 1
            ),
            ["total", "", *_cells(scores.total)],
        ]
    )
    if comparison is not None:
        one, other = comparison.first, comparison.second
        lines += ["", f"{one} minus {other}, in the same scenes"]
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
                ["total", *_compared(comparison.total)],
            ]
        )
    return "\n".join(lines)


def _cells(score: Score) -> list[str]:
    return [
        _rate(score.success),
        f"{score.success.low:.1%} to {score.success.high:.1%}",
        _rate(score.success_once),
        ", ".join(f"{count} {origin}" for origin, count in score.errors.items() if count),
    ]


def _rate(rate: Rate) -> str:
    percentage = "" if rate.rate is None else f" {rate.rate:.1%}"
    return f"{rate.successes}/{rate.trials}{percentage}"


def _compared(d: SuccessDifference) -> list[str]:
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
