"""What clouds tell policies: `python benchmarks/cloud_readout.py RUN ... --dataset DATASET`.

The features that a policy's body reads are those of its encoder, and the robot's own senses. From
these, keypoints are read by least squares, as its first layer could.
"""

import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from console import report_rows
from pose_errors import deviations_deg
from tyro.conf import Positional, arg

from fleet_tools.config.values import Positive
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.dataset.samples import Samples

RIDGE = 1e-3
"""Penalty of the readout, relative to the mean square of the features."""
COLUMNS = ("policy", "training loss", "validation loss")
ERRORS = ("steps", "tool, mm", "object, mm", "gap, mm", "tool's axis, deg", "object's axis, deg")


class ReadoutOptions(cli.Options):
    """Reads keypoints from the features of trained policies, in validation episodes.

    Prints a row for each policy: its losses after the last epoch, and median errors of the first
    pair of keypoints that the task's expert brings together, of the gap between the two, and of the
    first axes that it aligns. All are in the frame of the end effector, over steps in which the two
    keypoints are near each other.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    """

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
    """Folders of training runs."""
    dataset: Path
    """Dataset of the mode "cloud_and_keypoints", from which the policies have learned."""
    within_mm: Positive = 50.0
    """Largest distance of the two keypoints, mm."""
    repeats_deg: Positive = 360.0
    """Angle after which the object looks the same, such as 60 of a hexagonal nut, deg."""


def read_out(features: "np.ndarray", targets: "np.ndarray", seen: "np.ndarray") -> "np.ndarray":
    """Returns what least squares read of features.

    Args:
        features: (n, k) features of steps.
        targets: (n, m) numbers to be read.
        seen: (n,) bool, the steps to which the readout is fitted.

    Returns:
        (n, m) readings of all steps.
    """
    import numpy as np

    scale = features[seen].std(0) + 1e-6
    rows = (features - features[seen].mean(0)) / scale
    mean = targets[seen].mean(0)
    gram = rows[seen].T @ rows[seen] + RIDGE * seen.sum() * np.eye(rows.shape[1])
    return mean + rows @ np.linalg.solve(gram, rows[seen].T @ (targets[seen] - mean))


def _measure(options: ReadoutOptions) -> int:
    report_rows(options, COLUMNS + ERRORS, (_row(run, options) for run in options.runs))
    return cli.OK


def _row(run: Path, options: ReadoutOptions) -> dict[str, Any]:
    import numpy as np

    from fleet_tools.baselines.policies.checkpoint import load_checkpoint
    from fleet_tools.baselines.training.demonstrations import split
    from fleet_tools.baselines.training.record import TRAINING_RUN, load_progress
    from fleet_tools.baselines.training.state import TrainingError
    from fleet_tools.dataset.samples import Samples

    spec = TRAINING_RUN.read_document(run)
    samples = Samples(options.dataset)
    _, held_out = split(samples, spec.validation_fraction, spec.training.seed)
    unseen = {episode.record.seed for episode in held_out.episodes}
    steps = int(samples.lengths.sum())
    owners = np.repeat(np.arange(len(samples.lengths)), samples.lengths)
    seen = np.array([each.record.seed not in unseen for each in samples.episodes])[owners]
    observed = samples.read(np.arange(steps))["observation"]
    features = _features(load_checkpoint(run / "last.safetensors"), observed)
    names = ("tool_keypoints", "object_keypoints")
    there = [(observed[name], int(observed[name][0, :, 3].sum())) for name in names]
    targets = np.concatenate([each[:, :n, :3].reshape(steps, -1) for each, n in there], 1)
    readings = read_out(features, targets.astype(float), seen)
    last = load_progress(run).metrics[-1]
    if last.validation_loss is None:
        raise TrainingError(f"{run} has no validation episodes; train with --validation-fraction.")
    losses = [f"{each:.3g}" for each in (last.loss, last.validation_loss)]
    return dict(zip(COLUMNS, [run.name, *losses], strict=True)) | _errors(
        samples, targets, readings, ~seen, options
    )


def _features(checkpoint: Any, observed: dict[str, "np.ndarray"]) -> "np.ndarray":
    import numpy as np
    import torch

    network = checkpoint.blueprint.create().eval()
    network.load_state_dict(checkpoint.weights)
    parts = []
    with torch.inference_mode():
        for first in range(0, len(next(iter(observed.values()))), 256):
            rows = slice(first, first + 256)
            batch = {
                name: torch.from_numpy(np.ascontiguousarray(observed[name][rows]))[None]
                for name in checkpoint.blueprint.observation
            }
            parts.append(network.features(batch)[0].double().numpy())
    return np.concatenate(parts)


def _errors(
    samples: "Samples",
    targets: "np.ndarray",
    readings: "np.ndarray",
    which: "np.ndarray",
    options: ReadoutOptions,
) -> dict[str, Any]:
    """Returns the median errors in some steps."""
    import numpy as np

    from fleet_tools.config.tasks import load_task

    task = load_task(samples.episodes[0].header.env_spec.task)
    terms = task.expert.actuation.constraints
    point = next(term for term in terms if term.type == "point_to_point")
    axis = next(term for term in terms if term.type == "axis_to_axis" and term.object)
    names = [f"tool {name}" for name in task.keypoints.tool]
    names += [f"object {name}" for name in task.keypoints.object]

    def at(rows: np.ndarray, part: str, name: str) -> np.ndarray:
        k = 3 * names.index(f"{part} {name}")
        return rows[:, k : k + 3]

    def ends(rows: np.ndarray) -> list[np.ndarray]:
        return [at(rows, part, getattr(point, part)) for part in ("tool", "object")]

    tool, thing = ends(targets)
    near = which & (1e3 * np.linalg.norm(tool - thing, axis=-1) <= options.within_mm)
    true, read = targets[near], readings[near]
    (tool, thing), (tool_read, thing_read) = ends(true), ends(read)
    offs = [tool_read - tool, thing_read - thing, (tool_read - thing_read) - (tool - thing)]
    cells = [f"{1e3 * median(np.linalg.norm(off, axis=-1)):.1f}" for off in offs]
    for part in ("tool", "object"):
        start, end = getattr(axis, part)
        one, other = (at(rows, part, end) - at(rows, part, start) for rows in (true, read))
        repeats = options.repeats_deg if part == "object" else 360.0
        cells.append(f"{median(deviations_deg(one, other, repeats)):.1f}")
    return dict(zip(ERRORS, [str(int(near.sum())), *cells], strict=True))


PROGRAM = cli.Program(
    "cloud_readout.py", cli.Command(ReadoutOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
