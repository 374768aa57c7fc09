"""Files that programs of the package store: datasets and results."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from support.damage import STRUCTURES, damaged, relist
from support.dataset_readers import read_episodes, read_samples, read_summary
from support.small_datasets import Drawn, write
from support.submitted import random_evaluation
from support.submitted import write as write_result

from fleet_tools.dataset import Dataset
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.result import Evaluation, decode_actions
from fleet_tools.evaluation.result_folder import EPISODES, RESULT, load_evaluation
from fuzz.kernel import Subject, require, require_same_after_json
from fuzz.mutations import changed_json, changed_lines, pick

Named = tuple[str, bytes]
"""A file's name and content."""

FIRST = "episodes/episode_000000.hdf5"


def with_one_file(
    folder: Path,
    whole: Mapping[str, bytes],
    read: Callable[[str], Any],
    check: Callable[[Named, Any], None],
    make: Callable[[np.random.Generator], Named] | None = None,
) -> Subject:
    """Returns a subject that reads a folder in which one file is another.

    Args:
        folder: The folder.
        whole: The unharmed files, which are there again after a trial.
        read: Reads the folder in which a file of this name is another.
        check: See `Subject`.
        make: Returns name and content of the other file; by default one that is changed as its
            suffix says.
    """

    def changed(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        return name, _changed_file(name, whole[name], generator)

    def read_with(given: Named) -> Any:
        name, content = given
        (folder / name).write_bytes(content)
        try:
            return read(name)
        finally:
            (folder / name).write_bytes(whole[name])

    return Subject(make or changed, read_with, check)


def _changed_file(name: str, content: bytes, generator: np.random.Generator) -> bytes:
    match name.rpartition(".")[2]:
        case "json":
            return changed_json(content.decode(), generator)
        case "jsonl":
            return changed_lines(content.decode(), generator)
        case "safetensors":
            from fuzz.kinds_tensors import changed_tensors

            return changed_tensors(content, generator)
        case "yaml":
            from fuzz.kinds_texts import changed_yaml

            return changed_yaml([content.decode()])(generator)
    return damaged(content, generator)


# --- Datasets -------------------------------------------------------------------------------


def documents(folder: Path) -> Subject:
    """Headers and manifests of datasets."""
    write(folder / "data", Drawn([3, 2], [True, False], 0, labelled=True))
    whole = {
        name: (folder / "data" / name).read_bytes() for name in ("dataset.json", "manifest.jsonl")
    }

    def read(_: str) -> Dataset:
        dataset = Dataset(folder / "data")
        read_summary(folder / "data")
        read_episodes(folder / "data")
        with contextlib.suppress(FleetToolsError):  # such as of a dataset without episodes
            read_samples(folder / "data")
        return dataset

    def check(given: Named, dataset: Dataset) -> None:
        for value in (dataset.header, *dataset.manifest()):
            require_same_after_json(value)

    return with_one_file(folder / "data", whole, read, check)


def checked_episodes(folder: Path) -> Subject:
    """Episodes with a digest."""
    write(folder / "data", Drawn([3, 2], [True, True], 0))
    whole = {FIRST: (folder / "data" / FIRST).read_bytes()}
    expected = _read_both(folder / "data")

    def check(given: Named, found: Any) -> None:
        require(found == expected, "other content in spite of the digest")

    return with_one_file(folder / "data", whole, lambda _: _read_both(folder / "data"), check)


def forged_episodes(folder: Path) -> Subject:
    """Episodes with a digest that was made to fit."""
    data = folder / "data"
    write(data, Drawn([3, 2], [True, True], 0))
    content, manifest = (data / FIRST).read_bytes(), (data / "manifest.jsonl").read_bytes()
    (folder / "secret").write_bytes(bytes(10_000))

    def make(generator: np.random.Generator) -> bytes:
        if generator.integers(3):
            return damaged(content, generator)
        (folder / "other.hdf5").write_bytes(content)
        with h5py.File(folder / "other.hdf5", "r+") as file:
            _change_structure(file.require_group("episode_0"), generator, folder / "secret")
        return (folder / "other.hdf5").read_bytes()

    def read(given: bytes) -> Any:
        (data / FIRST).write_bytes(given)
        (data / "manifest.jsonl").write_bytes(manifest)
        relist(data)
        read_samples(data)
        return list(Dataset(data))

    def check(_: bytes, episodes: Any) -> None:
        for episode in episodes:
            for name, rows in {**episode.step_arrays(), **episode.state_arrays()}.items():
                if rows.dtype.kind == "f":
                    require(np.isfinite(rows).all(), f"{name} is not finite")
            require(np.abs(episode.actions).max(initial=0) <= 1, "an action out of range")
            require(len(episode.observations["joint_position"]) == len(episode) + 1, "a length")

    return Subject(make, read, check)


def _read_both(folder: Path) -> Any:
    return read_episodes(folder), read_samples(folder)


def _change_structure(group: h5py.Group, generator: np.random.Generator, outside: Path) -> None:
    names: list[str] = []
    group.visititems(
        lambda name, each: names.append(name) if isinstance(each, h5py.Dataset) else None
    )
    match int(generator.integers(3)):
        case 0:
            pick(generator, STRUCTURES)(group, pick(generator, names), outside)
        case 1:
            array = group[pick(generator, names)]
            assert isinstance(array, h5py.Dataset)
            values = array[()]
            flat = values.reshape(-1)
            number = pick(
                generator,
                (0, 1, 200, *((np.nan, np.inf, 1e30, -2) if flat.dtype.kind == "f" else ())),
            )
            flat[int(generator.integers(flat.size))] = number
            array[...] = values
        case _:
            name = pick(generator, sorted(group.attrs))
            text = group.attrs[name]
            text = text if isinstance(text, str) else str(text)
            try:
                group.attrs[name] = changed_json(text, generator).decode()
            except (ValueError, UnicodeError):  # no JSON, or a NUL
                group.attrs[name] = pick(generator, (1, 0.5, b"\xff", "[" * 300, ""))


# --- Results --------------------------------------------------------------------------------


def results(folder: Path) -> Subject:
    """Results of evaluations."""
    write_result(random_evaluation(0.5), folder / "result")
    whole = {name: (folder / "result" / name).read_bytes() for name in (RESULT, EPISODES)}

    def check(given: Named, evaluation: Evaluation) -> None:
        for value in (evaluation.result, *evaluation.episodes):
            require_same_after_json(value)
        for episode in evaluation.episodes:
            actions = decode_actions(episode.actions)
            require(actions.shape == (episode.steps, 6), f"actions of the shape {actions.shape}")
            require(np.isfinite(actions).all(), "an action is not finite")

    result = folder / "result"
    return with_one_file(result, whole, lambda _: load_evaluation(result), check)
