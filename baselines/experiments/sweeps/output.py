"""The files of a sweep: results as JSON, and the page and the figures made from them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet_tools.baselines.experiments.sweeps.figures import save_byte_figure, save_value_figure
from fleet_tools.baselines.experiments.sweeps.markdown_page import markdown_page
from fleet_tools.baselines.experiments.sweeps.summary import Row
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep
from fleet_tools.storage.atomic_files import atomic_write


def write_results(sweep: Sweep, results: Mapping[str, Any], folder: Path, stem: str) -> None:
    """Writes all files of a sweep.

    Args:
        sweep: The sweep.
        results: Its results, see `summary.summarize`.
        folder: Folder of the files.
        stem: File name of the sweep, without its suffix.
    """
    with atomic_write(folder / f"{stem}.json") as aside:
        aside.write_text(json.dumps(results, indent=1) + "\n")
    write_page(sweep, results["rows"], folder, stem)


def write_page(sweep: Sweep, rows: Sequence[Row], folder: Path, stem: str) -> None:
    """Writes the page and the figures of a sweep.

    Args:
        sweep: The sweep.
        rows: Its results, see `summary.summarize_arm`.
        folder: Folder of the files.
        stem: File name of the sweep, without its suffix.
    """
    save_value_figure(sweep, rows, folder / f"{stem}.png")
    save_byte_figure(sweep, rows, folder / f"{stem}_bytes.png")
    with atomic_write(folder / f"{stem}.md") as aside:
        aside.write_text(markdown_page(sweep, rows, stem), encoding="utf-8")
