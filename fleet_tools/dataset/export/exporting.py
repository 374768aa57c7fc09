"""Selects the episodes of an export, and puts a complete output in place, or none."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.export import (
    FORMAT_NAMES,
    FormatName,
    lerobot,
    minari,
    ply,
    robomimic,
    zarr,
)
from fleet_tools.dataset.export.source import ExportSource
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.errors import DatasetError, UnknownNameError
from fleet_tools.storage.atomic_files import temporary_in


@dataclass(frozen=True)
class ExportFormat:
    """Format of another project.

    Attributes:
        suffix: Suffix of the output's name, if none is given.
        write: Writes a source to a path that is moved to its target afterwards, and returns what
            the format could not hold.
        opens: Returns the line of Python that opens an output.
        view: Whether an output holds links to the dataset's files, instead of copies.
        executed: Name of the executed actions, beside those to imitate; None if it has no actions.
        others: Where the steps not to imitate are, which its learners do not read.
        of_chunks: Whether its learners predict several actions at once.
        padding: How its learners are kept from imitating padding at the ends of short pieces.
        target: Returns the location of the dataset in an output.
    """

    suffix: str
    write: Callable[[ExportSource, Path, Path], list[str]]
    opens: Callable[[Path, Header], str]
    target: Callable[[Path, Header], Path] = lambda output, header: output
    view: bool = False
    executed: str | None = None
    others: str = ""
    of_chunks: bool = False
    padding: str = ""


def _export_format(name: FormatName) -> ExportFormat:
    match name:
        case "lerobot":
            return ExportFormat(
                "-lerobot",
                lerobot.write,
                lerobot.opens,
                executed="executed_action",
                others="not_imitated/",
                of_chunks=True,
                padding="ACT leaves out what is beyond a piece; diffusion needs "
                "--policy.do_mask_loss_for_padding=true --policy.drop_n_last_frames=0",
            )
        case "minari":
            return ExportFormat(
                "-minari",
                minari.write,
                minari.opens,
                minari.target,
                view=True,
                executed="infos/executed_actions",
                others="data/whole.hdf5",
            )
        case "ply":
            return ExportFormat("-ply", ply.write, ply.opens)
        case "robomimic":
            return ExportFormat(
                "-robomimic.hdf5",
                robomimic.write,
                robomimic.opens,
                view=True,
                executed="executed_actions",
                others="the group `whole`",
                padding="sequences repeat the last step of a piece; train.seq_length=1 does not",
            )
        case "zarr":
            return ExportFormat(
                ".zarr",
                zarr.write,
                zarr.opens,
                executed="executed_action",
                others="the group `not_imitated`",
                of_chunks=True,
                padding="diffusion policy repeats actions beyond a piece, unless its dataset has "
                "pad_before=0 pad_after=0, and skips pieces that are shorter than its horizon",
            )


FORMATS: dict[str, ExportFormat] = {name: _export_format(name) for name in FORMAT_NAMES}
"""All formats by their names, see `FormatName`."""


@dataclass(frozen=True)
class Export:
    """A finished export.

    Attributes:
        format: Name of the format, see `FORMATS`.
        output: The new file or folder.
        episodes, steps: Numbers of episodes and of control steps.
        bytes: Size of the output.
        opens: Line of Python that opens it.
        view_of: Folder of the dataset whose files it needs; None if it is a copy.
        left_out: What the format, or this export, does not hold.
        imitation: What a learner reads, where that is not each episode with the executed actions.
    """

    format: str
    output: str
    episodes: int
    steps: int
    bytes: int
    opens: str
    view_of: str | None
    left_out: list[str]
    imitation: list[str]


def export_dataset(
    dataset: Dataset,
    to: str,
    output: Path | None = None,
    *,
    failures: bool = False,
    whole: bool = False,
    quiet: bool = True,
) -> Export:
    """Exports the successful episodes of a dataset.

    Learners of other projects imitate all actions of what they take for an episode. So they are
    given the actions to imitate, and episodes are cut where there is none.

    Args:
        dataset: The dataset.
        to: Name of the format, see `FORMATS`.
        output: New file or folder; beside the dataset if None. Minari's is a root, which may hold
            other datasets.
        failures: Whether to export stored failures, too, marked as such.
        whole: Whether not to cut episodes, so that a learner has to heed `imitate` itself.
        quiet: Whether to show no progress.

    Raises:
        UnknownNameError: There is no such format.
        MissingLibraryError: The library that writes it is missing; the message says how to install
            it.
        DatasetError: The output exists, there is nothing to export, or an episode is damaged.
        OSError: The output cannot be written; nothing is left behind.
    """
    if to not in FORMATS:
        raise UnknownNameError("format", to, FORMATS)
    export_format = FORMATS[to]
    if output is None:
        folder = dataset.folder.resolve()
        output = folder.with_name(folder.name + export_format.suffix)
    target = export_format.target(output, dataset.header)
    records = _selected(dataset, failures)
    source = ExportSource(
        dataset, records, export_format.of_chunks, whole or not export_format.executed, quiet
    )
    if not source.piece_count:
        raise DatasetError(
            f"{dataset.folder} holds no step to imitate. --whole exports its episodes all the same."
        )
    with _complete(target) as aside:
        left_out = export_format.write(source, aside, target)
    return Export(
        format=to,
        output=str(target),
        episodes=len(source.records),
        steps=source.steps,
        bytes=_size(target),
        opens=export_format.opens(output, dataset.header),
        view_of=str(dataset.folder) if export_format.view else None,
        left_out=left_out + _not_selected(dataset, source.records),
        imitation=_imitation(source, export_format),
    )


def as_text(export: Export) -> str:
    """Returns a summary of an export for people."""
    lines = [
        f"{export.format}: {export.episodes} episodes, {export.steps} steps, "
        f"{export.bytes / 1e6:.2f} MB in {export.output}",
        *([f"  a view of {export.view_of}, whose files it needs"] if export.view_of else []),
        *(f"  {what}" for what in export.imitation),
        *(f"  left out: {what}" for what in export.left_out),
        f"  open it with: {export.opens}",
    ]
    return "\n".join(lines)


def _imitation(source: ExportSource, export_format: ExportFormat) -> list[str]:
    """Says what is to be imitated, where that is not what was executed."""
    labels = [source.labels(record) for record in source.records]
    noisy = sum(len(each.noise_steps) for each in labels)
    corrected = sum(len(each.learner_steps) for each in labels)
    lines = []
    if export_format.executed is None:
        return lines
    if noisy:
        where = f"they are in {export_format.others}, which learners do not read"
        if source.whole:
            where = "a learner has to heed `imitate`"
        lines.append(f"{noisy} of {source.steps} steps are not to be imitated: {where}")
    if corrected:
        lines.append(
            f"{corrected} of {source.steps} actions are the expert's, for a learner acted: those "
            f"executed are in `{export_format.executed}`"
        )
    if corrected and source.whole and source.of_chunks:
        lines.append("a chunk of actions to predict at once has to end with such an action")
    if source.cut:
        lines.append(
            f"the episodes are cut at these steps, into {source.piece_count} (--whole leaves them)"
        )
        lines += [export_format.padding] if export_format.padding else []
    return lines


def _selected(dataset: Dataset, failures: bool) -> list[AttemptRecord]:
    records = [r for r in dataset.stored() if r.steps > 0 and (r.success or failures)]
    if not records:
        remedy = "" if failures or not len(dataset) else " --all exports failures, too."
        raise DatasetError(f"{dataset.folder} holds no episode to export.{remedy}")
    return records


def _not_selected(dataset: Dataset, selected: list[AttemptRecord]) -> list[str]:
    attempts = {record.attempt for record in selected}
    rest = [record for record in dataset.manifest() if record.attempt not in attempts]
    stored = [record for record in rest if record.file is not None]
    empty = sum(record.steps == 0 for record in stored)
    counts = {
        "failed episodes (--all exports them, too)": len(stored) - empty,
        "episodes without a single step": empty,
        "attempts that only the manifest lists": len(rest) - len(stored),
    }
    return [
        "wall time and policy info of each attempt (manifest.jsonl)",
        *(f"{count} {what}" for what, count in counts.items() if count),
    ]


@contextlib.contextmanager
def _complete(target: Path) -> Iterator[Path]:
    """Yields a temporary path for a file or a folder, which becomes the target when all went well.

    Raises:
        DatasetError: The target exists.
        DiskError: The disk is full, read-only or broken.
    """
    _refuse_existing(target)
    existing = next(folder for folder in target.absolute().parents if folder.exists())
    with temporary_in(existing, target) as aside:
        yield aside
        target.parent.mkdir(parents=True, exist_ok=True)
        _refuse_existing(target)
        os.rename(aside, target)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise DatasetError(f"{target} exists already. Give another --output, or remove it.")


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
