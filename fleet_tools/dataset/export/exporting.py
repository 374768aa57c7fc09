"""Selects the episodes of an export, and writes its output completely or not at all."""

import contextlib
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.config.values import differences
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.export import FORMAT_NAMES, FormatName, lerobot, minari, robomimic
from fleet_tools.dataset.export.source import ExportSource
from fleet_tools.dataset.header import Header
from fleet_tools.envs.array_spec import layout_differences
from fleet_tools.envs.observation_modes import observation_kwargs
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
        one_environment: Whether an output names one environment, in which all episodes were made.
        executed: Name of the executed actions, beside those to imitate.
        others: Where the steps not to imitate are, which its learners do not read.
        of_chunks: Whether its learners predict several actions at once.
        padding: How its learners are kept from imitating padding at the ends of short pieces.
        target: Returns the location of the dataset in an output.
    """

    suffix: str
    write: Callable[[ExportSource, Path, Path], list[str]]
    opens: Callable[[Path, Sequence[Dataset]], str]
    executed: str
    others: str
    padding: str = ""
    target: Callable[[Path, Sequence[Dataset]], Path] = lambda output, datasets: output
    view: bool = False
    one_environment: bool = False
    of_chunks: bool = False


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
                target=minari.target,
                view=True,
                one_environment=True,
                executed="infos/executed_actions",
                others="data/whole.hdf5",
            )
        case "robomimic":
            return ExportFormat(
                "-robomimic.hdf5",
                robomimic.write,
                robomimic.opens,
                view=True,
                one_environment=True,
                executed="executed_actions",
                others="the group `whole`",
                padding="sequences repeat the last step of a piece; train.seq_length=1 does not",
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
        pieces: Number of what a learner takes for an episode; more than there are, if they are cut.
        cut: Whether episodes are cut at steps that are not to be imitated.
        median_piece_steps: Median number of control steps of a piece.
        bytes: Size of the output.
        opens: Line of Python that opens it.
        view_of: Folders of the datasets whose files it needs; none if it is a copy.
        left_out: What the format, or this export, does not hold.
        imitation: What a learner reads, where that is not each episode with the executed actions.
    """

    format: str
    output: str
    episodes: int
    steps: int
    pieces: int
    cut: bool
    median_piece_steps: float
    bytes: int
    opens: str
    view_of: list[str]
    left_out: list[str]
    imitation: list[str]


def export_dataset(
    datasets: Dataset | Sequence[Dataset],
    to: str,
    output: Path | None = None,
    *,
    failures: bool = False,
    whole: bool = False,
    quiet: bool = True,
) -> Export:
    """Exports the successful episodes of a dataset, or of several datasets together.

    Learners of other projects imitate all actions of what they take for an episode. So they are
    given the actions to imitate, and episodes are cut where there is none.

    Args:
        datasets: The dataset, or datasets with the same observations and actions.
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
        DatasetError: The output exists, a dataset has nothing to export, datasets do not fit
            together, or an episode is damaged.
        OSError: The output cannot be written; nothing is left behind.
    """
    if to not in FORMATS:
        raise UnknownNameError("format", to, FORMATS)
    export_format = FORMATS[to]
    datasets = [datasets] if isinstance(datasets, Dataset) else list(datasets)
    _require_fit(datasets, to)
    if output is None:
        if len(datasets) > 1:
            raise DatasetError(
                "An export of several datasets has no default folder. Give --output."
            )
        folder = datasets[0].folder.resolve()
        output = folder.with_name(folder.name + export_format.suffix)
    target = export_format.target(output, datasets)
    _refuse_existing(target)
    source = ExportSource(datasets, failures, export_format.of_chunks, whole, quiet)
    _require_episodes(source)
    with _complete(target) as aside:
        left_out = export_format.write(source, aside, target)
    return Export(
        format=to,
        output=str(target),
        episodes=len(source.episodes),
        steps=source.steps,
        pieces=len(source.lengths),
        cut=source.cut,
        median_piece_steps=statistics.median(source.lengths),
        bytes=_size(target),
        opens=export_format.opens(output, datasets),
        view_of=[str(each.folder) for each in datasets] if export_format.view else [],
        left_out=left_out + _not_selected(source),
        imitation=_imitation(source, export_format),
    )


def as_text(export: Export) -> str:
    """Returns a summary of an export for people."""
    size = f"{export.steps} steps, {export.bytes / 1e6:.2f} MB in {export.output}"
    if export.cut:
        first = (
            f"{export.pieces} pieces of {export.episodes} episodes, median "
            f"{export.median_piece_steps:g} steps, cut at steps that are not to be imitated. For "
            "whole episodes, export data of `collect --policy expert`, or give --whole and heed "
            "its mask `imitate`"
        )
        lines = [f"{export.format}: {first}", f"  {size}"]
    else:
        lines = [f"{export.format}: {export.episodes} episodes, {size}"]
    shown = export.view_of if len(export.view_of) < 2 else [f"{len(export.view_of)} datasets"]
    lines += [
        *(f"  a view of {folder}, whose files it needs" for folder in shown),
        *(f"  {what}" for what in export.imitation),
        *(f"  left out: {what}" for what in export.left_out),
        f"  open it with: {export.opens}",
    ]
    return "\n".join(lines)


def _imitation(source: ExportSource, export_format: ExportFormat) -> list[str]:
    """Says what is to be imitated, where that is not what was executed."""
    labels = [each.stored.labels for each in source.episodes]
    noisy = sum(len(each.noise_steps) for each in labels)
    corrected = sum(len(each.learner_steps) for each in labels)
    lines = []
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
    if source.cut and export_format.padding:
        lines.append(export_format.padding)
    return lines


def _require_fit(datasets: Sequence[Dataset], to: str) -> None:
    """Checks that datasets can be exported as one.

    Raises:
        DatasetError: They cannot; the message says all that differs.
    """
    if not datasets:
        raise DatasetError("No dataset is given. `python -m fleet_tools.collect` makes one.")
    folders = [dataset.folder.resolve() for dataset in datasets]
    if twice := [str(folder) for k, folder in enumerate(folders) if folder in folders[:k]]:
        raise DatasetError(f"{', '.join(twice)} is given twice. Give each dataset once.")
    first, *others = datasets
    found = {
        other.folder: _misfits(other.header, first.header, FORMATS[to].one_environment)
        for other in others
    }
    if any(found.values()):
        several = [name for name, each in FORMATS.items() if not each.one_environment]
        tasks = f" Several tasks fit into {', '.join(several)}." if to not in several else ""
        lines = [f"{folder}: {'; '.join(each)}" for folder, each in found.items() if each]
        raise DatasetError(
            f"These datasets differ from {first.folder}, but all episodes of a {to} export need "
            f"the same observations and actions. Export them separately.{tasks}\n  "
            + "\n  ".join(lines)
        )


def _misfits(header: Header, expected: Header, one_environment: bool) -> list[str]:
    """Lists how a dataset differs from one with which it is to be exported."""
    one, other = (_facts(each, one_environment) for each in (header, expected))
    layout, action = {**header.observation, "action": header.action}, expected.action
    return [
        *differences(one, other),
        *layout_differences({**expected.observation, "action": action}, layout),
        *(f"there is {name!r}" for name in header.observation if name not in expected.observation),
    ]


def _facts(header: Header, one_environment: bool) -> dict[str, object]:
    """Returns what is to be the same in datasets of one export, beside the layouts."""
    task = parse_yaml(header.task.text, f"The task file of the dataset ({header.task.name})")
    cameras = task if isinstance(task, dict) and _is_seen(header) else {}
    facts: dict[str, object] = {
        "the robot": header.robot,
        **observation_kwargs(header.env_spec.kwargs),
        **{f"the task's {name}": cameras.get(name) for name in ("cameras", "sensors")},
    }
    if one_environment:
        essence = header.essence()
        models = map(str, header.models)
        facts |= {name: essence[name] for name in ("the task", "the environment", *models)}
    return facts


def _is_seen(header: Header) -> bool:
    """Whether cameras made some of the observations."""
    return any(each.is_image or each.kind == "points" for each in header.observation.values())


def _require_episodes(source: ExportSource) -> None:
    """Checks that there is something to export of each dataset.

    Raises:
        DatasetError: There is not.
    """
    for number, dataset in enumerate(source.datasets):
        own = [each for each in source.episodes if each.dataset == number]
        if not own:
            remedy = "" if source.failures or not len(dataset) else " --all exports failures, too."
            raise DatasetError(f"{dataset.folder} holds no episode to export.{remedy}")
        if not any(each.pieces for each in own):
            raise DatasetError(
                f"{dataset.folder} has no steps to imitate. --whole exports all steps of its "
                "episodes."
            )


def _not_selected(source: ExportSource) -> list[str]:
    attempts = {(each.dataset, each.record.attempt) for each in source.episodes}
    rest = [
        record
        for number, dataset in enumerate(source.datasets)
        for record in dataset.manifest()
        if (number, record.attempt) not in attempts
    ]
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
