"""The folder of a training run, stored so that little is lost when the process is killed.

    config.json             what the run depends on (`run_spec.TrainingRunSpec`)
    state.safetensors       all that is needed to resume it (`progress.TrainingProgress`)
    metrics.jsonl           a line for each epoch (`progress.EpochMetrics`)
    last.safetensors        the policy at that state (`policies.checkpoint`)
    best.safetensors        the policy after the epoch with the lowest validation loss

The last three follow from the state, which is stored first.
"""

import json
from pathlib import Path
from typing import Any

from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.progress import EpochMetrics, TrainingProgress
from fleet_tools.baselines.training.run_spec import TrainingRunSpec
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.config.values import parse
from fleet_tools.storage.run_folder import RunWriter
from fleet_tools.storage.tensor_files import write_tensors

STATE, METRICS = "state.safetensors", "metrics.jsonl"
LAST, BEST = "last.safetensors", "best.safetensors"

_KEY = "fleet_tools_training"


class TrainingWriter(RunWriter[TrainingRunSpec]):
    """Stores a new training run, or resumes one that was begun with the same options.

    Args:
        folder: Created if it does not exist; otherwise empty, or the folder of the same run.
        spec: What the run depends on.

    Raises:
        TrainingError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, folder: Path, spec: TrainingRunSpec) -> None:
        super().__init__(folder, spec, log_name=METRICS, what="a training run", error=TrainingError)

    def load(self) -> TrainingProgress:
        """Returns the stored progress, or that before the first step.

        Raises:
            TrainingError: The state is damaged.
        """
        if (self.folder / STATE).exists():
            return load_progress(self.folder)
        weights = self.spec.blueprint.create(self.spec.training.seed).state_dict()
        return TrainingProgress(TrainingState.initial(weights))

    def save(self, progress: TrainingProgress) -> None:
        """Stores the progress.

        Raises:
            OSError: The disk is full or gone; the progress before is still stored.
        """
        from fleet_tools.baselines.merging.queries.wire import packed

        state = progress.state
        tensors = {
            f"{kind}/{name}": packed(tensor)
            for kind, named in (
                ("weights", state.weights),
                ("moments", state.moments),
                ("best", progress.best),
            )
            for name, tensor in named.items()
        }
        numbers = {name: getattr(state, name) for name in ("epoch", "batch", "squares", "steps")}
        metrics = [each.model_dump() for each in progress.metrics]
        content = json.dumps({**numbers, "metrics": metrics})
        write_tensors(self.folder / STATE, tensors, {_KEY: content})
        self.write_log([json.dumps(each) for each in metrics])
        save_checkpoint(self.folder / LAST, Checkpoint(self.spec.blueprint, state.weights))
        if progress.best:
            save_checkpoint(self.folder / BEST, Checkpoint(self.spec.blueprint, progress.best))


def load_progress(folder: Path) -> TrainingProgress:
    """Reads the progress of a training run.

    Raises:
        TrainingError: The state is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / STATE
    tensors: dict[str, dict[str, Any]] = {"weights": {}, "moments": {}, "best": {}}
    try:
        with safe_open(path, "pt") as opened:
            file: Any = opened  # the library's stubs have no types
            content = json.loads((file.metadata() or {})[_KEY])
            for key in file.keys():  # noqa: SIM118
                kind, _, name = key.partition("/")
                tensors[kind][name] = file.get_tensor(key).clone()
        metrics = tuple(parse(EpochMetrics, each, str(path)) for each in content.pop("metrics"))
        state = TrainingState(tensors["weights"], tensors["moments"], **content)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(
            f"{path} cannot be read ({error}). Delete {folder}, and train again."
        ) from None
    return TrainingProgress(state, tensors["best"], metrics)
