"""What policies read: `python benchmarks/reading_errors.py POLICY ... --dataset DATASET ...`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from console import report_rows
from tyro.conf import Positional, arg

from fleet_tools.utils import cli

COLUMNS = ("policy", "dataset", "episodes", "steps", "tool, mm", "object, mm")


class ReadingOptions(cli.Options):
    """Compares the keypoints on which policies behind a reader act with the exact ones.

    Prints a row for each policy and dataset: root mean squares of the distances of keypoints.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    """

    policies: Annotated[tuple[Path, ...], Positional, arg(metavar="POLICY")]
    """Checkpoints, as `python -m fleet_tools.baselines.attach_reader` makes them."""
    dataset: Annotated[tuple[Path, ...], arg(metavar="DATASET")]
    """Datasets of the mode "cloud_and_keypoints"."""


def _measure(options: ReadingOptions) -> int:
    report_rows(options, COLUMNS, _rows(options))
    return cli.OK


def _rows(options: ReadingOptions) -> Iterator[dict[str, Any]]:
    import numpy as np
    import torch

    from fleet_tools.baselines.policies.checkpoint import load_checkpoint
    from fleet_tools.baselines.policies.layout import LayoutError
    from fleet_tools.baselines.policies.reader import ReadingNetwork
    from fleet_tools.baselines.policies.reading import CLOUD, HAND, NAMES
    from fleet_tools.dataset.samples import Samples

    for path in options.policies:
        checkpoint = load_checkpoint(path)
        network = checkpoint.blueprint.create().eval()
        if not isinstance(network, ReadingNetwork):
            raise LayoutError(f"{path} has no reader. Attach one by baselines.attach_reader.")
        network.load_state_dict(checkpoint.weights)
        for dataset in options.dataset:
            samples = Samples([dataset], observations=[CLOUD, HAND, *NAMES])
            squares: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
            for start, length in zip(samples.starts, samples.lengths, strict=True):
                observed = samples.read(np.arange(start, start + length))["observation"]
                seen = {name: torch.from_numpy(observed[name])[None] for name in (CLOUD, HAND)}
                with torch.inference_mode():
                    read, _ = network.read(seen)
                for name in NAMES:
                    exact = observed[name]
                    off = (read[name][0].numpy() - exact)[..., :3]
                    squares[name].append((off**2).sum(-1)[exact[..., 3] > 0])
            errors = [1e3 * float(np.concatenate(each).mean() ** 0.5) for each in squares.values()]
            counts = (len(samples.lengths), int(samples.lengths.sum()))
            cells = [path.stem, str(dataset), *counts, *(f"{each:.1f}" for each in errors)]
            yield dict(zip(COLUMNS, cells, strict=True))


PROGRAM = cli.Program(
    "reading_errors.py", cli.Command(ReadingOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
