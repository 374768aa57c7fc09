"""Files of tensors: checkpoints, weights to merge, and states of runs."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from support import fleet_cases, training_cases
from support.damage import damaged
from support.damaged_runs import metadata_of
from support.small_checkpoints import untrained

from fleet_tools.baselines import fleet, train
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.model_files import read_model
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories, split
from fleet_tools.baselines.training.record import TrainingWriter
from fleet_tools.baselines.training.run import TrainingRunSpec
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.dataset.samples import Samples
from fleet_tools.storage.run_folder import read_spec
from fuzz.kernel import Subject, require, require_same_after_json
from fuzz.kinds_files import Named, with_one_file
from fuzz.mutations import changed_header, changed_json, pick

_ODD = (-1, 0, 2, 7, 64, 65, 2**31, 2**62, -(2**63))


def changed_tensors(content: bytes, generator: np.random.Generator) -> bytes:
    """Returns a safetensors file or message with changed bytes, header, metadata or tensors."""
    size = int.from_bytes(content[:8], "little")
    header, metadata = content[8 : 8 + size].decode().rstrip(), metadata_of(content)
    match int(generator.integers(6)):
        case 0:
            return damaged(content, generator)
        case 1:
            changed = changed_header(header, generator)
            return len(changed).to_bytes(8, "little") + changed + content[8 + size :]
        case 2 | 3 if metadata:
            key = pick(generator, sorted(metadata))
            with contextlib.suppress(UnicodeEncodeError, ValueError):  # or the text is no JSON
                changed = changed_json(metadata[key], generator).decode(errors="replace")
                return save(load(content), {**metadata, key: changed})
    tensors = load(content)
    for _ in range(int(generator.integers(1, 3))):
        name = pick(generator, sorted(tensors))
        tensors |= _changed(name, tensors.pop(name), generator)
        if not tensors:
            break
    return save({name: each.clone().contiguous() for name, each in tensors.items()}, metadata)


def _changed(
    name: str, tensor: torch.Tensor, generator: np.random.Generator
) -> dict[str, torch.Tensor]:
    """Returns a tensor with another name, type, shape or number, or nothing."""
    match int(generator.integers(8)):
        case 0:
            return {}
        case 1:
            other = pick(generator, ("x", ".", "weights.x", "seed", "largest", "moments", "é"))
            return {pick(generator, (other, name + other)): tensor}
        case 2:
            kinds = (
                torch.float64,
                torch.float16,
                torch.int64,
                torch.int32,
                torch.uint8,
                torch.bool,
            )
            return {name: tensor.to(pick(generator, (*kinds, torch.complex64, torch.bfloat16)))}
        case 3:
            return {name: torch.stack([tensor, tensor])}
        case 4:
            return {name: tensor.reshape(-1)[: int(generator.integers(tensor.numel() + 1))]}
        case 5 | 6 if tensor.numel():
            flat = tensor.flatten().clone()
            at = int(generator.integers(flat.numel()))
            if flat.is_complex() or flat.is_floating_point():
                flat[at] = pick(generator, (np.nan, np.inf, 1e30, -1.0, 0.0))
            else:
                flat[at] = pick(generator, _ODD if flat.dtype == torch.int64 else (0, 1))
            return {name: flat.reshape(tensor.shape)}
    return {name: tensor.reshape(-1)}


def checkpoints(folder: Path) -> Subject:
    """Checkpoints of policies, and weights to merge."""
    path = Path(untrained(folder / "policy.safetensors"))
    whole = path.read_bytes()

    def read(_: str) -> Checkpoint:
        read_model(path)
        checkpoint = load_checkpoint(path)
        checkpoint.blueprint.create().load_state_dict(dict(checkpoint.weights))
        return checkpoint

    def check(given: Named, checkpoint: Checkpoint) -> None:
        require_same_after_json(checkpoint.blueprint)
        for name, tensor in checkpoint.weights.items():
            require(torch.isfinite(tensor).all(), f"{name} is not finite")

    return with_one_file(folder, {path.name: whole}, read, check)


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
    changes = {
        "training": {"epochs": 2, "batch_size": 8, "seed": 5},
        "merge_every": 1,
        "server": {"optimizer": "yogi"},
    }
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

    def read(_: str = STATE) -> Any:
        with opened() as writer:
            return load_state(writer)

    expected = read()

    def check(given: Named, progress: Any) -> None:
        require(equal(progress, expected), "another state in spite of the digest")

    return with_one_file(run, {STATE: whole}, read, check)
