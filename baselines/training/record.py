"""The folder of a training: what it has come to, stored so that a kill at any moment costs little.

    config.json             the experiment (`experiment.Experiment`)
    state.safetensors       all that it takes to go on (`Record`)
    metrics.jsonl           a line for every epoch
    last.safetensors        the policy (`policies.checkpoint`) as it was when this was stored
    best.safetensors        the one whose validation loss was lowest

The last three follow from the state, which is stored first.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.experiment import Experiment
from fleet_tools.baselines.training.state import Tensors, TrainingState
from fleet_tools.config.values import parse
from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.atomic_files import leftovers, whole

CONFIG, STATE, METRICS = "config.json", "state.safetensors", "metrics.jsonl"
LAST, BEST = "last.safetensors", "best.safetensors"

_KEY = "fleet_tools_training"


@dataclass(frozen=True, eq=False)
class Record:
    """How far a training is, and what it met on its way.

    Attributes:
        state: Where it is.
        best: The weights after the epoch whose validation loss was lowest; empty before there is
            one.
        metrics: Of every epoch so far, as JSON has them.
    """

    state: TrainingState
    best: Tensors = field(default_factory=dict)
    metrics: tuple[dict[str, Any], ...] = ()

    @property
    def best_metrics(self) -> dict[str, Any] | None:
        """The metrics of the epoch whose validation loss was lowest, the first of equals."""
        validated = [each for each in self.metrics if each["validation_loss"] is not None]
        return min(validated, key=lambda each: each["validation_loss"], default=None)

    def with_epoch(self, metrics: dict[str, Any]) -> Self:
        """Returns the record after another epoch, of which `state` is the end."""
        after = replace(self, metrics=(*self.metrics, metrics))
        best = after.best_metrics
        return replace(after, best=after.state.weights) if best is metrics else after


class Comparable(Protocol):
    """A value that a `config.json` holds."""

    def differences(self, other: Self) -> list[str]:
        """Says what another one has otherwise."""
        ...

    def model_dump_json(self, *, indent: int) -> str:
        """Returns it as JSON."""
        ...


def claim(folder: Path, config: Comparable, what: str) -> None:
    """Begins a folder with its `config.json`, or sees to it that the one there says the same.

    Args:
        folder: To be.
        config: What is to be done in it.
        what: That is, in a word.

    Raises:
        TrainingError: It holds something else.
    """
    path = folder / CONFIG
    if not path.is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TrainingError(f"{folder} is there, and no {what}. Give another --output.")
        folder.mkdir(parents=True, exist_ok=True)
        with whole(path) as aside:
            aside.write_text(config.model_dump_json(indent=1) + "\n")
        return
    try:
        before = parse(type(config), json.loads(path.read_text()), str(path))
    except (ValueError, FleetToolsError) as error:
        raise TrainingError(f"{path} cannot be gone on with: {error}") from None
    if differences := before.differences(config):
        raise TrainingError(
            f"{folder} holds another {what}, in which {'; '.join(differences)}. Give another "
            "--output, or the same options."
        )
    for path in leftovers(folder):
        path.unlink()


def open_folder(folder: Path, experiment: Experiment) -> Record:
    """Begins the folder of a training, or reads what is there already.

    Returns:
        How far it is.

    Raises:
        TrainingError: It holds another training, something else, or a state that cannot be read.
    """
    claim(folder, experiment, "training")
    return load(folder) if (folder / STATE).is_file() else _beginning(experiment)


def save(folder: Path, experiment: Experiment, record: Record) -> None:
    """Stores how far a training is; what was stored before is there until then.

    Raises:
        OSError: The disk is full or gone.
    """
    import torch
    from safetensors.torch import save_file

    state = record.state
    tensors = {
        f"{kind}/{name}": tensor.clone(memory_format=torch.contiguous_format)  # shares nothing
        for kind, named in (
            ("weights", state.weights),
            ("moments", state.moments),
            ("best", record.best),
        )
        for name, tensor in named.items()
    }
    numbers = {name: getattr(state, name) for name in ("epoch", "batch", "squares", "steps")}
    notes = json.dumps({**numbers, "metrics": record.metrics})
    with whole(folder / STATE) as aside:
        save_file(tensors, aside, {_KEY: notes})
    with whole(folder / METRICS) as aside:
        aside.write_text("".join(f"{json.dumps(each)}\n" for each in record.metrics))
    save_checkpoint(folder / LAST, Checkpoint(experiment.blueprint, state.weights))
    if record.best:
        save_checkpoint(folder / BEST, Checkpoint(experiment.blueprint, record.best))


def load(folder: Path) -> Record:
    """Reads how far a training is.

    Raises:
        TrainingError: The file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / STATE
    tensors: dict[str, dict[str, Any]] = {"weights": {}, "moments": {}, "best": {}}
    try:
        with safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {})[_KEY])
            for key in file.keys():  # noqa: SIM118
                kind, _, name = key.partition("/")
                tensors[kind][name] = file.get_tensor(key).clone()
        metrics = tuple(notes.pop("metrics"))
        state = TrainingState(tensors["weights"], tensors["moments"], **notes)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(
            f"{path} cannot be read ({error}). Delete {folder}, and train again."
        ) from None
    return Record(state, tensors["best"], metrics)


def _beginning(experiment: Experiment) -> Record:
    weights = experiment.blueprint.create(experiment.training.seed).state_dict()
    return Record(TrainingState.initial(weights))
