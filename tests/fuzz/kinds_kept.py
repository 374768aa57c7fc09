"""What lies beside data and runs: carried models, documents and logs, caches, others' weights."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from support import fleet_cases, training_cases
from support.damage import damaged
from support.small_datasets import Drawn, write
from support.submitted import certificate, verification

from fleet_tools.baselines import fleet, train
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.federated import partial
from fleet_tools.baselines.federated.aggregation import FixedPointSum
from fleet_tools.baselines.federated.messages import LocalUpdate, encode
from fleet_tools.baselines.federated.record import ROUNDS, FleetWriter
from fleet_tools.baselines.federated.transport import read_reply, store_reply
from fleet_tools.baselines.model_files import read_model, read_notes, write_model
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.baselines.policies.resnet import ResNetEncoder, load_features
from fleet_tools.baselines.training.record import METRICS, TrainingWriter
from fleet_tools.baselines.training.run import TrainingRunSpec
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.config.file_access import assets_root
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.header import describe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.leaderboard.records import (
    CERTIFIED,
    VERIFIED,
    read_certificates,
    read_verifications,
    write_certificates,
    write_verifications,
)
from fleet_tools.storage.run_folder import CONFIG, read_spec
from fleet_tools.studio.importing.report import RECORD, edited_files
from fuzz.kernel import Subject, require
from fuzz.kinds_files import Named, with_one_file
from fuzz.mutations import changed_json, pick


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
    spec = read_spec(run, TrainingRunSpec, TrainingError)
    names = [f"run/{CONFIG}", f"run/{METRICS}", f"fleet/{CONFIG}", f"fleet/{ROUNDS}"]
    whole = {name: (folder / name).read_bytes() for name in names}
    expected = FleetWriter(fleets, plan)
    progress = expected.load()
    expected.close()

    def read(_: str) -> Any:
        with TrainingWriter(run, spec) as writer, FleetWriter(fleets, plan) as other:
            return writer.spec, read_spec(run, TrainingRunSpec, TrainingError), other.load()

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
    write_verifications(folder, {"ours": verification("ours", content_digest="0" * 32)})
    write_certificates(folder, {"ours": certificate([(True, True, False)])})
    (folder / "model").mkdir()
    (folder / "model" / RECORD).write_text(json.dumps({"import": {}, "files": {"a.obj": "0" * 64}}))
    readers: dict[str, Callable[[], Any]] = {
        cell: lambda: cells.get_or_compute(settings, lambda: {"score": 0.25}),
        "reply.safetensors": lambda: read_reply(folder / "reply.safetensors"),
        "exchange.safetensors": lambda: partial.load(folder / "exchange.safetensors"),
        VERIFIED: lambda: read_verifications(folder),
        CERTIFIED: lambda: read_certificates(folder),
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
