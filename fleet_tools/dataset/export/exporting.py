"""Chooses what to export, and puts the whole of it in its place or nothing."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.dataset.export import lerobot, minari, robomimic, zarr
from fleet_tools.dataset.export.source import Source
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.reader import Dataset, Record
from fleet_tools.errors import DatasetError, UnknownNameError


@dataclass(frozen=True)
class Format:
    """Another project's format.

    Attributes:
        suffix: Of the output's name, if none is given.
        write: Writes a source to a path that is later moved to its target, and returns what the
            format could not hold.
        opens: Returns the line of Python that opens an output.
        target: Returns where below the output the data set belongs.
    """

    suffix: str
    write: Callable[[Source, Path, Path], list[str]]
    opens: Callable[[Path, Header], str]
    target: Callable[[Path, Header], Path] = lambda output, header: output


FORMATS = {
    "minari": Format("-minari", minari.write, minari.opens, minari.target),
    "robomimic": Format("-robomimic.hdf5", robomimic.write, robomimic.opens),
    "lerobot": Format("-lerobot", lerobot.write, lerobot.opens),
    "zarr": Format(".zarr", zarr.write, zarr.opens),
}


@dataclass(frozen=True)
class Export:
    """What was exported.

    Attributes:
        format: A name in `FORMATS`.
        output: The file or folder that is new.
        episodes, steps: How many.
        bytes: Of the output.
        opens: The line of Python that opens it.
        left_out: What the format, or this export, does not hold.
    """

    format: str
    output: str
    episodes: int
    steps: int
    bytes: int
    opens: str
    left_out: list[str]


def export_dataset(
    dataset: Dataset, to: str, output: Path | None = None, *, failures: bool = False
) -> Export:
    """Exports a data set.

    Args:
        dataset: Of which the successful episodes are taken.
        to: A name in `FORMATS`.
        output: Beside the data set if None. Minari's is a root, which may hold other data sets.
        failures: Takes the stored failures, too, marked as such.

    Raises:
        UnknownNameError: There is no such format.
        MissingLibraryError: What writes it is absent; the message says how to install it.
        DatasetError: The output exists, there is nothing to export, or an episode is damaged.
        OSError: It cannot be written; nothing is left behind.
    """
    if to not in FORMATS:
        raise UnknownNameError("format", to, FORMATS)
    form = FORMATS[to]
    if output is None:
        folder = dataset.folder.resolve()
        output = folder.with_name(folder.name + form.suffix)
    target = form.target(output, dataset.header)
    source = Source(dataset, _chosen(dataset, failures))
    with _whole(target) as aside:
        left_out = form.write(source, aside, target)
    return Export(
        format=to,
        output=str(target),
        episodes=len(source.records),
        steps=source.steps,
        bytes=_size(target),
        opens=form.opens(output, dataset.header),
        left_out=left_out + _not_chosen(dataset, source.records),
    )


def as_text(export: Export) -> str:
    """Returns for people what was exported."""
    lines = [
        f"{export.format}: {export.episodes} episodes, {export.steps} steps, "
        f"{export.bytes / 1e6:.2f} MB in {export.output}",
        *(f"  left out: {what}" for what in export.left_out),
        f"  open it with: {export.opens}",
    ]
    return "\n".join(lines)


def _chosen(dataset: Dataset, failures: bool) -> list[Record]:
    chosen = [r for r in dataset.stored() if r.steps > 0 and (r.success or failures)]
    if not chosen:
        remedy = "" if failures or not len(dataset) else " --all takes failures, too."
        raise DatasetError(f"{dataset.folder} holds no episode to export.{remedy}")
    return chosen


def _not_chosen(dataset: Dataset, chosen: list[Record]) -> list[str]:
    attempts = {record.attempt for record in chosen}
    rest = [record for record in dataset.manifest() if record.attempt not in attempts]
    stored = [record for record in rest if record.file is not None]
    empty = sum(record.steps == 0 for record in stored)
    counts = {
        "failed episodes (--all takes them, too)": len(stored) - empty,
        "episodes without a single step": empty,
        "attempts of which only the manifest knows": len(rest) - len(stored),
    }
    return [
        "each attempt's wall time and what the policy said of it (manifest.jsonl)",
        *(f"{count} {what}" for what, count in counts.items() if count),
    ]


@contextlib.contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Yields a path to write a file or a folder to, which is moved when all went well."""
    _refuse_existing(target)
    beside = next(folder for folder in target.absolute().parents if folder.exists())
    aside = beside / f".{target.name}.{os.getpid()}"
    try:
        yield aside
        target.parent.mkdir(parents=True, exist_ok=True)
        _refuse_existing(target)
        os.rename(aside, target)
    finally:
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise DatasetError(f"{target} exists already. Give another --output, or remove it.")


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
