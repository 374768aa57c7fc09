"""The report of a check as HTML: what fails, how to mend it, and what the expert did."""

import html
from collections.abc import Mapping
from typing import Any

FINE, BAD, QUIET = "#2b8a3e", "#c92a2a", "#777"
"""Colours of what holds, of what does not, and of what stands beside it."""


def report_html(report: Mapping[str, Any]) -> str:
    """Returns a report of `fleet_tools.studio.checking.program.make_report` as HTML."""
    rows = []
    if report["error"] is not None:
        rows.append(_row(BAD, "It cannot be loaded", report["error"]))
    measured = report["measurements"]
    for each in measured:
        if not each["holds"]:
            rows.append(_row(BAD, each["text"], f"{each['reason']}. {each['remedy']}"))
    holding = sum(each["holds"] for each in measured)
    if measured:
        rows.append(
            _row(
                FINE if holding == len(measured) else BAD,
                f"{holding} of {len(measured)} measurements are as the family needs them",
            )
        )
    for tried in report["trials"]:
        words = f"The expert in the task {tried['task']}: {tried['successes']} of {tried['scenes']}"
        partners = ", ".join(tried["partners"]) or "nothing"
        rows.append(_row(BAD if tried["failures"] else FINE, words, f"with {partners}"))
        for stage, failures in tried["failures"].items():
            example = failures["example"]
            words = f"{failures['count']} failed at the stage: {stage}"
            rows.append(_row(BAD, words, f"seed {example['seed']}: {example['why']}"))
    return f'<div style="font-size:13px;line-height:1.4;padding:0 10px">{"".join(rows)}</div>'


def _row(colour: str, words: str, more: str = "") -> str:
    return (
        f'<div style="border-left:3px solid {colour};padding:1px 8px;margin:4px 0">'
        f'{html.escape(words)}<div style="color:{QUIET}">{html.escape(more)}</div></div>'
    )
