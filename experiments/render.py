"""Writes the pages and figures of all experiments from their stored results.

    python experiments/render.py

The results, `*.json`, are read and not changed; nothing is trained or measured again.
"""

import json
from pathlib import Path

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
    for path in sorted((EXPERIMENTS / "studies").glob("*.json")):
        page = output / "studies" / path.with_suffix(".md").name
        studies.write_page(json.loads(path.read_text()), page)
    for path in sorted(EXPERIMENTS.glob("*/barriers.json")):
        report = json.loads(path.read_text())
        save_figure(report, output / path.parent.name / "barriers.png")


if __name__ == "__main__":
    main()
