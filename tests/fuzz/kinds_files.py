"""Files that programs of the package store: datasets, results, checkpoints and states of runs."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from fuzz.kernel import Subject, require
from fuzz.mutations import changed_json, changed_lines, pick
from safetensors.torch import load, save
from support import fleet_cases, training_cases
from support.damage import STRUCTURES, damaged, relist, without_digests
from support.damaged_runs import metadata_of
from support.dataset_readers import read_episodes, read_samples, read_summary
from support.small_checkpoints import untrained
from support.small_datasets import Drawn, write
from support.submitted import random_evaluation
from support.submitted import write as write_result

from fleet_tools.baselines import fleet, train
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.merging.model_files import read_model
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.training.demonstrations import split
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.record import TrainingWriter
from fleet_tools.baselines.training.run_spec import TrainingRunSpec
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.result import Evaluation, decode_actions
from fleet_tools.evaluation.result_file import EPISODES, RESULT, load_evaluation
from fleet_tools.storage.run_folder import read_spec

Named = tuple[str, bytes]
"""A file's name and content."""

FIRST = "episodes/episode_000000.hdf5"


def with_one_file(
    folder: Path,
    whole: Mapping[str, bytes],
    make: Callable[[np.random.Generator], Named],
    read: Callable[[], Any],
    check: Callable[[Named, Any], None],
) -> Subject:
    """Returns a subject that reads a folder in which one file is another.

    Args:
        folder: The folder.
        whole: The unharmed files, which are there again after a trial.
        make: Returns name and content of the other file.
        read: Reads the folder.
        check: See `Subject`.
    """

    def read_with(given: Named) -> Any:
        name, content = given
        (folder / name).write_bytes(content)
        try:
            return read()
        finally:
            (folder / name).write_bytes(whole[name])

    return Subject(make, read_with, check)


# --- Datasets -------------------------------------------------------------------------------


def documents(folder: Path) -> Subject:
    """Headers and manifests of datasets."""
    write(folder / "data", Drawn([3, 2], [True, False], 0))
    whole = {
        name: (folder / "data" / name).read_bytes() for name in ("dataset.json", "manifest.jsonl")
    }

    def make(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        change = changed_json if name == "dataset.json" else changed_lines
        return name, change(whole[name].decode(), generator)

    def read() -> Dataset:
        dataset = Dataset(folder / "data")
        read_summary(folder / "data")
        read_episodes(folder / "data")
        with contextlib.suppress(FleetToolsError):  # such as of a dataset without episodes
            read_samples(folder / "data")
        return dataset

    def check(given: Named, dataset: Dataset) -> None:
        for value in (dataset.header, *dataset.manifest()):
            again = type(value).model_validate_json(value.to_json())
            require(again == value, f"{type(value).__name__} changes on its way through JSON")

    return with_one_file(folder / "data", whole, make, read, check)


def checked_episodes(folder: Path) -> Subject:
    """Episodes with a digest."""
    write(folder / "data", Drawn([3, 2], [True, True], 0))
    whole = {FIRST: (folder / "data" / FIRST).read_bytes()}
    expected = _read_both(folder / "data")

    def make(generator: np.random.Generator) -> Named:
        return FIRST, damaged(whole[FIRST], generator)

    def check(given: Named, found: Any) -> None:
        require(found == expected, "other content in spite of the digest")

    return with_one_file(folder / "data", whole, make, lambda: _read_both(folder / "data"), check)


def forged_episodes(folder: Path) -> Subject:
    """Episodes without a digest, or with one that was made to fit."""
    data = folder / "data"
    write(data, Drawn([3, 2], [True, True], 0))
    content, manifest = (data / FIRST).read_bytes(), (data / "manifest.jsonl").read_bytes()
    (folder / "secret").write_bytes(bytes(10_000))

    def make(generator: np.random.Generator) -> tuple[bytes, bool]:
        forged = bool(generator.integers(2))
        if generator.integers(3):
            return damaged(content, generator), forged
        (folder / "other.hdf5").write_bytes(content)
        with h5py.File(folder / "other.hdf5", "r+") as file:
            _change_structure(file.require_group("episode_0"), generator, folder / "secret")
        return (folder / "other.hdf5").read_bytes(), forged

    def read(given: tuple[bytes, bool]) -> Any:
        changed, forged = given
        (data / FIRST).write_bytes(changed)
        (data / "manifest.jsonl").write_bytes(manifest)
        relist(data) if forged else without_digests(data)
        read_samples(data)
        return list(Dataset(data))

    def check(given: tuple[bytes, bool], episodes: Any) -> None:
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

    def make(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        change = changed_json if name == RESULT else changed_lines
        return name, change(whole[name].decode(), generator)

    def check(given: Named, evaluation: Evaluation) -> None:
        for value in (evaluation.result, *evaluation.episodes):
            again = type(value).model_validate_json(value.to_json())
            require(again == value, f"{type(value).__name__} changes on its way through JSON")
        for episode in evaluation.episodes:
            actions = decode_actions(episode.actions)
            require(actions.shape == (episode.steps, 6), f"actions of the shape {actions.shape}")
            require(np.isfinite(actions).all(), "an action is not finite")

    read = lambda: load_evaluation(folder / "result")  # noqa: E731
    return with_one_file(folder / "result", whole, make, read, check)


# --- Tensors --------------------------------------------------------------------------------


def changed_tensors(content: bytes, generator: np.random.Generator) -> bytes:
    """Returns a safetensors file with changed bytes, header, metadata or tensors."""
    size = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + size], content[8 + size :]
    match int(generator.integers(5)):
        case 0:
            return damaged(content, generator)
        case 1:
            changed = changed_json(header.decode().rstrip(), generator)
            return len(changed).to_bytes(8, "little") + changed + rest
        case 2 | 3:
            ((key, text),) = metadata_of(content).items()
            changed = changed_json(text, generator).decode(errors="replace")
            with contextlib.suppress(UnicodeEncodeError):
                return save(load(content), {key: changed})
    tensors = load(content)
    name = pick(generator, sorted(tensors))
    tensors.update(_changed_tensor(name, tensors.pop(name), generator))
    return save(tensors, metadata_of(content))


def _changed_tensor(
    name: str, tensor: torch.Tensor, generator: np.random.Generator
) -> dict[str, torch.Tensor]:
    match int(generator.integers(6)):
        case 0:
            return {}
        case 1:
            return {name + "x": tensor}
        case 2:
            return {name: tensor.to(pick(generator, (torch.float64, torch.int32, torch.float16)))}
        case 3:
            return {name: torch.stack([tensor, tensor])}
        case 4 if tensor.numel() and tensor.is_floating_point():
            flat = tensor.flatten().clone()
            flat[int(generator.integers(flat.numel()))] = pick(
                generator, (float("nan"), float("inf"), 1e38, 0.0)
            )
            return {name: flat.reshape(tensor.shape)}
    return {name: tensor.reshape(-1).clone()}


def checkpoints(folder: Path) -> Subject:
    """Checkpoints of policies, and weights to merge."""
    path = Path(untrained(folder / "policy.safetensors"))
    whole = path.read_bytes()

    def make(generator: np.random.Generator) -> Named:
        return path.name, changed_tensors(whole, generator)

    def read() -> Checkpoint:
        read_model(path)
        checkpoint = load_checkpoint(path)
        checkpoint.blueprint.create().load_state_dict(dict(checkpoint.weights))
        return checkpoint

    def check(given: Named, checkpoint: Checkpoint) -> None:
        blueprint = checkpoint.blueprint
        again = type(blueprint).model_validate_json(blueprint.to_json())
        require(again == blueprint, "the blueprint changes on its way through JSON")
        for name, tensor in checkpoint.weights.items():
            require(torch.isfinite(tensor).all(), f"{name} is not finite")

    return with_one_file(folder, {path.name: whole}, make, read, check)


STATE = "state.safetensors"


def training_states(folder: Path) -> Subject:
    """States of training runs."""
    torch.set_num_threads(1)
    data, run = training_cases.small_data(folder / "data").episodes[0].folder, folder / "run"
    options = training_cases.train_options(data, run, "--epochs", "2", "--quiet")
    assert train.main(options) == 0
    spec = read_spec(run, TrainingRunSpec, TrainingError)
    training, _ = split(Samples(data), spec.validation_fraction, spec.training.seed)
    trajectories = Trajectories(training, spec.blueprint)
    return _states(
        run,
        lambda: TrainingWriter(run, spec),
        lambda writer: writer.load(trajectories),
        training_cases.equal,
    )


def fleet_states(folder: Path) -> Subject:
    """States of fleets."""
    data, output = fleet_cases.write_data(folder / "data"), folder / "fleet"
    changes = {"training": {"epochs": 2, "batch_size": 8, "seed": 5}, "merge_every": 1}
    assert fleet.main(fleet_cases.arguments(data, output, **changes)) == 0
    plan = fleet_cases.plan_of(data, **changes)
    return _states(
        output, lambda: FleetWriter(output, plan), lambda writer: writer.load(), fleet_cases.equal
    )


def _states(
    run: Path,
    opened: Callable[[], Any],
    load_state: Callable[[Any], Any],
    equal: Callable[[Any, Any], bool],
) -> Subject:
    whole = (run / STATE).read_bytes()

    def read() -> Any:
        with opened() as writer:
            return load_state(writer)

    expected = read()

    def make(generator: np.random.Generator) -> Named:
        return STATE, changed_tensors(whole, generator)

    def check(given: Named, progress: Any) -> None:
        require(equal(progress, expected), "another state in spite of the digest")

    return with_one_file(run, {STATE: whole}, make, read, check)
