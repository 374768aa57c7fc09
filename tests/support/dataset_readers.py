"""What is read of a dataset, as values that can be compared."""

import json
from pathlib import Path
from typing import Any

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.summary import summarize


def read_episodes(folder: Path, check: bool = True) -> list[Any]:
    """Returns scenes, outcomes and arrays of all episodes."""
    return [
        [
            each.scene,
            each.outcome,
            {name: (rows.dtype, rows.shape, rows.tobytes()) for name, rows in arrays.items()},
        ]
        for each in Dataset(folder, check=check)
        for arrays in [{**each.step_arrays(), **each.state_arrays()}]
    ]


def read_samples(folder: Path, check: bool = True) -> list[Any]:
    """Returns all samples, those of failures, too."""
    samples = Samples(folder, failures=True, check=check)
    batch = samples.gather(range(len(samples)))
    return [rows.tobytes() for rows in (*batch["observation"].values(), batch["action"])]


def read_summary(folder: Path) -> str:
    """Returns the summary, without what depends on the folder."""
    dataset = Dataset(folder)
    summary = summarize(dataset.folder, dataset.header, dataset.manifest())
    del summary["output"], summary["bytes"]
    return json.dumps(summary)
