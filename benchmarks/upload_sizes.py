"""Bytes of raw demonstrations as uploads: `python benchmarks/upload_sizes.py DATASET ...`.

Each dataset is one upload:

    python benchmarks/upload_sizes.py data/hammer data/spatula
    python benchmarks/upload_sizes.py cloud/hammer --set points=32 --set cloud_every=4
    python benchmarks/upload_sizes.py rgbd/hammer --observations end_effector_pose wrist_rgb
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
from scaffold import main_of, report_rows
from tyro.conf import Positional, UseAppendAction, arg

from fleet_tools.config.values import Count, parse
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import Demonstrations, RawDataConfig
from fleet_tools.utils import cli
from fleet_tools.utils.option_parser import KeyValue

_COLUMNS = ("dataset", "episodes", "steps", "raw bytes", "all steps", "imitated alone")


class UploadSizesOptions(cli.Options):
    """Prints a row for each dataset, with bytes an episode.

    Raw bytes are the size in memory of the numbers that a policy learns from. Policies with memory
    need all steps. For others, the steps to be imitated suffice.
    """

    datasets: Annotated[
        tuple[Path, ...], Positional, arg(metavar="DATASET"), pydantic.Field(min_length=1)
    ]
    """Folders of datasets; each is one upload."""
    observations: tuple[str, ...] = ()
    """Entries of the observation to send (default: all)."""
    settings: Annotated[UseAppendAction[tuple[KeyValue, ...]], arg(name="set")] = ()
    """Setting of RawDataConfig, such as points=64 or cloud_every=4; may be repeated."""
    episodes: Count | None = None
    """Number of episodes of each dataset, from the first on (default: all)."""


def _measure(options: UploadSizesOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options), _cells)
    return cli.OK


def _rows(options: UploadSizesOptions) -> Iterator[dict[str, Any]]:
    config = parse(RawDataConfig, dict(options.settings), "--set")
    for folder in options.datasets:
        samples = Samples(folder, observations=options.observations or None)
        samples = samples.subset(range(len(samples.episodes))[: options.episodes])
        steps = int(samples.lengths.sum())
        arrays = [*samples.observation.values(), samples.action]
        sizes = []
        for only_imitated in (False, True):
            sent = Demonstrations(samples, [folder], config, only_imitated)
            sizes.append(len(sent.upload(range(len(sent.episodes)))))
        yield {
            "dataset": str(folder),
            "episodes": len(samples.episodes),
            "steps": steps,
            "raw_bytes": steps * sum(np.zeros(a.shape, a.dtype).nbytes for a in arrays),
            "all_steps": sizes[0],
            "imitated_alone": sizes[1],
        }


def _cells(row: dict[str, Any]) -> list[str]:
    *facts, raw, whole, imitated = row.values()
    return [
        *map(str, facts),
        *(f"{each / row['episodes']:,.0f}" for each in (raw, whole, imitated)),
    ]


main = main_of(__file__, UploadSizesOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
