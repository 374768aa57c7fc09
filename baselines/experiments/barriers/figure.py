"""The figure of barriers: a column for each set of fleets, with losses above success rates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_tools.baselines.experiments.line_figure import Line, save_line_figure
from fleet_tools.baselines.experiments.plot_scales import Measure


def save_figure(report: Mapping[str, Any], path: Path) -> None:
    """Plots for each method the mean over pairs, in a band from the lowest to the highest.

    Args:
        report: See `report.make_report`.
        path: File of the image.
    """
    measures: list[Measure] = ["loss", "success"] if report["rollouts"] else ["loss"]
    lines = [
        Line(
            curve["set"],
            curve["method"],
            {measure: curve[measure]["lambdas"] for measure in measures},
            {measure: curve[measure]["values"] for measure in measures},
        )
        for curve in report["curves"]
    ]
    sets = [each["title"] for each in report["sets"]]
    save_line_figure(lines, sets, list(report["methods"]), measures, path)
