"""Tables of a result's scores, and of its comparison with another one, for the terminal."""

from collections.abc import Iterator, Mapping

from fleet_tools.evaluation.result import Rate, Result, Score
from fleet_tools.evaluation.scores import Comparison, SuccessDifference

CONTACT_METRICS_COLUMNS = {
    "object peak, N": "object_peak_N",
    "object mean, N": "object_mean_N",
    "table peak, N": "table_peak_N",
    "table mean, N": "table_mean_N",
    "table work, J": "table_work_J",
    "time, s": "time_s",
    "path, m": "hand_path_m",
    "limits, s": "joint_limit_s",
}
"""Names in `Score.contact_metrics` by the heads of their columns."""


def as_text(result: Result, comparison: Comparison | None = None) -> str:
    """Returns a table of a result's scores.

    Args:
        result: The result, with scores.
        comparison: Its comparison with another one, for a second table.
    """
    scores, protocol, stopped = result.scores, result.protocol, result.stopped
    state = "complete" if result.complete else "stopped early" if stopped else "incomplete"
    lines = [
        f"{result.policy.label}, protocol {protocol.title} ({result.protocol_digest}), {state}"
    ]
    if scores is None:
        return lines[0]
    if stopped:
        lines.append(
            "The evaluation was stopped by its verdict, so the rates and intervals of this table "
            "are biased. It is not a result of the protocol. Run the same command without --stop "
            "to complete it."
        )
    if result.order_dependence:
        lines.append(result.order_dependence)
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
    if scores.total.contact_metrics is not None:
        lines += ["", "Contact metrics, means over episodes"]
        lines += _table(
            [
                ["task", "success", "gentle", *CONTACT_METRICS_COLUMNS],
                *([task, *_handled(score)] for task, score in scores.tasks.items()),
                ["total", *_handled(scores.total)],
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
        if comparison.anytime is not None:
            lines += ["", f"At any time: {comparison.anytime}"]
        if stopped:
            lines.append(
                "Interval and p of the table are valid only for a fixed number of scenes, which "
                "this evaluation did not have. The values in the last line but one are valid at "
                "every stopping time."
            )
    return "\n".join(lines)


def _cells(score: Score) -> list[str]:
    return [
        _rate_text(score.success),
        f"{score.success.low:.1%} to {score.success.high:.1%}",
        _rate_text(score.success_once),
        ", ".join(f"{count} {origin}" for origin, count in score.errors.items() if count),
    ]


def _handled(score: Score) -> list[str]:
    gentle = "-" if score.gentle is None else _rate_text(score.gentle)
    return [_rate_text(score.success), gentle, *contact_metrics_texts(score.contact_metrics)]


def contact_metrics_texts(contact_metrics: Mapping[str, float] | None) -> list[str]:
    """Returns the numbers of `CONTACT_METRICS_COLUMNS` as text; dashes where they are not known."""
    if contact_metrics is None:
        return ["-"] * len(CONTACT_METRICS_COLUMNS)
    return [f"{contact_metrics[name]:.3g}" for name in CONTACT_METRICS_COLUMNS.values()]


def _rate_text(rate: Rate) -> str:
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
