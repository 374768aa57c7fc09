"""Files of tensors, runs and caches: checkpoints, weights to merge, states, documents and logs."""

import contextlib
import json
import shutil
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
from support.small_datasets import Drawn, write
from support.submitted import SMALL, host_ran, random_evaluation, write_entry

from fleet_tools.baselines import fleet, train
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.federated import partial
from fleet_tools.baselines.federated.aggregation import FixedPointSum
from fleet_tools.baselines.federated.messages import LocalUpdate, encode
from fleet_tools.baselines.federated.record import ROUNDS, FleetWriter
from fleet_tools.baselines.federated.transport import read_reply, store_reply
from fleet_tools.baselines.model_files import read_model, read_notes, write_model
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.baselines.policies.resnet import ResNetEncoder, load_features
from fleet_tools.baselines.training.demonstrations import Trajectories, split
from fleet_tools.baselines.training.record import METRICS, TRAINING_RUN, TrainingWriter
from fleet_tools.config.file_access import assets_root
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.header import describe
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.leaderboard.host import (
    ROUND,
    VERIFICATION,
    open_round,
    read_round,
    read_verification,
)
from fleet_tools.storage.run_folder import CONFIG
from fleet_tools.studio.importing.program import RECORD, edited_files
from fuzz.kinds_files import Named, with_one_file
from fuzz.mutations import changed_header, changed_json, pick
from fuzz.running import Subject, require, require_same_after_json

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
    spec = TRAINING_RUN.read_document(run)
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
        "server": {"optimizer": "adam"},
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


def carried_models(folder: Path) -> Subject:
    """Models that a dataset carries, and what its header says of them."""
    mine = shutil.copytree(assets_root() / "tools/hammer/claw", folder / "mine")
    spec = EnvSpec.of("hammer", tool=str(mine), object="round_nail")
    env = spec.make()
    header = describe(env, spec, policy="expert", seed=0, keep_failures=False)
    env.close()
    data = folder / "data"
    write(data, Drawn([2], [True], 0), header)
    shutil.rmtree(mine)
    whole = {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and (path.name == "dataset.json" or "models" in path.parts)
    }
    expected = Dataset(data).header
    models = sorted(set(whole) - {"dataset.json"})

    def make(generator: np.random.Generator) -> Named:
        if generator.integers(2) == 0:
            name = pick(generator, models)
            return name, whole[name] if generator.integers(8) == 0 else damaged(
                whole[name], generator
            )
        document = json.loads(whole["dataset.json"])
        part = json.loads(changed_json(json.dumps(document["models"]), generator) or b"0")
        return "dataset.json", json.dumps(document | {"models": part}).encode()

    def made(generator: np.random.Generator) -> Named:
        try:
            return make(generator)
        except ValueError:  # no JSON at all, which is what "headers and manifests" is for
            return "dataset.json", b"{}"

    def read(_: str) -> Any:
        found = Dataset(data).header
        env = found.make_env()
        try:
            env.reset(seed=0)
            return found, unwrap(env).scene
        finally:
            env.close()

    def check(given: Named, found: Any) -> None:
        header, scene = found
        require(header.task == expected.task, "another task")
        if given[0] in models:
            require(given[1] == whole[given[0]], "another model in spite of its hash")
        elif header.models:
            require(header.models == expected.models, "other models in spite of their hashes")
        require(scene.tool.startswith("mine@"), f"another tool: {scene.tool}")

    return with_one_file(data, whole, read, check, made)


def run_documents(folder: Path) -> Subject:
    """Documents and logs of training runs and of fleets."""
    torch.set_num_threads(1)
    data = training_cases.small_data(folder / "data").episodes[0].folder
    run, fleets = folder / "run", folder / "fleet"
    options = training_cases.train_options(data, run, "--epochs", "2", "--quiet")
    assert train.main(options) == 0
    fleet_data = fleet_cases.write_data(folder / "fleet_data")
    changes = {"training": {"epochs": 2, "batch_size": 8, "seed": 5}, "merge_every": 1}
    assert fleet.main(fleet_cases.arguments(fleet_data, fleets, **changes)) == 0
    plan = fleet_cases.plan_of(fleet_data, **changes)
    spec = TRAINING_RUN.read_document(run)
    names = [f"run/{CONFIG}", f"run/{METRICS}", f"fleet/{CONFIG}", f"fleet/{ROUNDS}"]
    whole = {name: (folder / name).read_bytes() for name in names}
    expected = FleetWriter(fleets, plan)
    progress = expected.load()
    expected.close()

    def read(_: str) -> Any:
        with TrainingWriter(run, spec) as writer, FleetWriter(fleets, plan) as other:
            return writer.document, TRAINING_RUN.read_document(run), other.load()

    def check(given: Named, found: Any) -> None:
        require(found[0] == found[1] == spec, "another run")
        require(fleet_cases.equal(found[2], progress), "another fleet")

    return with_one_file(folder, whole, read, check)


def kept_files(folder: Path) -> Subject:
    """Caches, replies, exchanges, the host's records, and records of imports: may be damaged."""
    cells, settings = Cells(folder), {"seed": 1, "rates": [0.5, 1.0]}
    cells.get_or_compute(settings, lambda: {"score": 0.25})
    cell = next(folder.glob("*.json")).name
    update = LocalUpdate(1, 4, 0.0, {"w": torch.ones(3)})
    store_reply(folder / "reply.safetensors", update)
    terms = FixedPointSum(np.arange(3), 2, 2)
    exchange = partial.Partial(2, {"w": torch.ones(3)}, terms, {}, (1,))
    partial.store(folder / "exchange.safetensors", exchange)
    round_ = open_round(folder, SMALL, [], "1")
    made = random_evaluation(0.5, name="ours", protocol=round_.protocol)
    host_ran(folder, write_entry(folder, "ours"), [made])
    (folder / "model").mkdir()
    (folder / "model" / RECORD).write_text(json.dumps({"import": {}, "files": {"a.obj": "0" * 64}}))
    readers: dict[str, Callable[[], Any]] = {
        cell: lambda: cells.get_or_compute(settings, lambda: {"score": 0.25}),
        "reply.safetensors": lambda: read_reply(folder / "reply.safetensors"),
        "exchange.safetensors": lambda: partial.load(folder / "exchange.safetensors"),
        f"host/{ROUND}": lambda: read_round(folder),
        f"host/ours/{VERIFICATION}": lambda: read_verification(folder, "ours"),
        f"model/{RECORD}": lambda: edited_files(folder / "model"),
    }
    whole = {name: (folder / name).read_bytes() for name in readers}
    checked = load(whole["reply.safetensors"]).keys()  # its digest is one of them

    def check(given: Named, found: Any) -> None:
        name, content = given
        match name:
            case "result.json":
                json.dumps(found, allow_nan=False)
            case "reply.safetensors" if found is not None and load(content).keys() >= checked:
                require(encode(found) == encode(update), "another reply in spite of its digest")
            case "exchange.safetensors" if found is not None:
                require(np.array_equal(found.total.terms, terms.terms), "another sum")

    return with_one_file(folder, whole, lambda name: readers[name](), check)


def foreign_weights(folder: Path) -> Subject:
    """Weights of others to merge, in all types, with notes."""
    generator = torch.Generator().manual_seed(0)
    state = {
        "layer.weight": torch.randn(4, 3, generator=generator),
        "layer.bias": torch.zeros(4, dtype=torch.bfloat16),
        "norm.running_var": torch.ones(4, dtype=torch.float64),
        "norm.num_batches_tracked": torch.tensor(3),
        "half": torch.ones(2, 2, dtype=torch.float16),
    }
    path = folder / "model.safetensors"
    write_model(path, state, {"method": "naive_average", "rates": [0.1]})
    encoder = ResNetEncoder(ResNet18Config(width=4, stages=1))
    features = folder / "features.safetensors"
    write_model(features, encoder.state_dict())
    whole = {each.name: each.read_bytes() for each in (path, features)}

    def read(_: str) -> Any:
        load_features(encoder, features)
        weights = read_model(path)  # whose memory is that of the file, which is restored
        return {name: each.clone() for name, each in weights.items()}, read_notes(path)

    def check(given: Named, found: Any) -> None:
        for name, each in (*found[0].items(), *encoder.state_dict().items()):
            require(torch.isfinite(each).all(), f"{name} is not finite")
        json.dumps(found[1], allow_nan=False)

    return with_one_file(folder, whole, read, check)
