"""Writes the pages and figures of all experiments from their stored results.

    python experiments/render.py

The results, `*.json`, are read and not changed; nothing is trained or measured again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet_tools.baselines.experiments.barriers.figure import save_figure
from fleet_tools.baselines.experiments.studies import output as studies
from fleet_tools.baselines.experiments.sweeps.output import write_page
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep
from fleet_tools.config.values import load_yaml

EXPERIMENTS = Path(__file__).parent


def main(output: Path = EXPERIMENTS) -> None:
    """Writes all pages and figures.

    Args:
        output: Folder of the pages and figures.
    """
    for path in sorted(EXPERIMENTS.glob("*.yaml")):
        results = json.loads(path.with_suffix(".json").read_text())
        write_page(load_yaml(Sweep, path), results["rows"], output, path.stem)
    bits = json.loads((EXPERIMENTS / "streaming_bits.json").read_text())
    save_success_over_bytes(bits["rows"], output / "large_fleets" / "success_over_bytes.png")
    for path in sorted((EXPERIMENTS / "studies").glob("*.json")):
        page = output / "studies" / path.with_suffix(".md").name
        studies.write_page(json.loads(path.read_text()), page)
    for path in sorted(EXPERIMENTS.glob("*/barriers.json")):
        report = json.loads(path.read_text())
        save_figure(report, output / path.parent.name / "barriers.png")


def save_success_over_bytes(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws the success rates of a sweep's fleets, with their intervals, over their bytes.

    Args:
        rows: Rows of the sweep's results; those without bytes are left out.
        path: File of the figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        if row["arm"] != "joint":
            rate, low, high = (row["success"][name] for name in ("rate", "low", "high"))
            errors = [[rate - low], [high - rate]]
            axes.errorbar(row["bytes"] / 1e6, rate, errors, fmt="o", capsize=3, label=row["arm"])
    axes.set(xlabel="transferred MB", ylabel="success rate", xlim=(0, None), ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
