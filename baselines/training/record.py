"""The folder of a training run, stored so that little is lost when the process is killed.

    config.json             what the run depends on (`run_spec.TrainingRunSpec`)
    state.safetensors       all that is needed to resume it (`progress.TrainingProgress`)
    metrics.jsonl           a line for each epoch (`progress.EpochMetrics`)
    last.safetensors        the policy at that state (`policies.checkpoint`)
    best.safetensors        the policy after the best epoch (`progress.best_epoch`)

The last three follow from the state, which is stored first.
"""

import json
from pathlib import Path
from typing import Any

from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.progress import EpochMetrics, TrainingProgress
from fleet_tools.baselines.training.resumption import defects
from fleet_tools.baselines.training.run_spec import TrainingRunSpec
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.config.values import CountOrZero, NonNegative, Value, parse
from fleet_tools.storage.run_folder import REMEDY, RunWriter, set_aside
from fleet_tools.storage.tensor_files import read_checked, write_checked

STATE, METRICS = "state.safetensors", "metrics.jsonl"
LAST, BEST = "last.safetensors", "best.safetensors"

_KEY, _WHAT = "fleet_tools_training", "a training run"
_NUMBERS = ("epoch", "batch", "squares", "steps")


class _Content(Value):
    """What a state holds beside its tensors, see `TrainingState`."""

    epoch: CountOrZero
    batch: CountOrZero
    squares: NonNegative
    steps: CountOrZero
    metrics: tuple[EpochMetrics, ...]


class TrainingWriter(RunWriter[TrainingRunSpec]):
    """Stores a new training run, or resumes one that was begun with the same options.

    Args:
        folder: Created if it does not exist; otherwise empty, or the folder of the same run.
        spec: What the run depends on.

    Raises:
        TrainingError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, folder: Path, spec: TrainingRunSpec) -> None:
        super().__init__(folder, spec, log_name=METRICS, what=_WHAT, error=TrainingError)

    def load(self, trajectories: Trajectories) -> TrainingProgress:
        """Returns the stored progress, or that before the first step.

        Args:
            trajectories: Trajectories that the run learns from.

        Raises:
            TrainingError: The state is missing or damaged, or not one of this run.
        """
        if self.has_state(STATE):
            progress = load_progress(self.folder)
            if found := defects(self.spec, trajectories, progress):
                raise TrainingError(f"{self.folder / STATE} is damaged: {found}. {REMEDY}")
            return progress
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
                ("average", state.average),
                ("best", progress.best),
            )
            for name, tensor in named.items()
        }
        numbers = {name: getattr(state, name) for name in _NUMBERS}
        metrics = [each.model_dump() for each in progress.metrics]
        content = json.dumps({**numbers, "metrics": metrics})
        write_checked(self.folder / STATE, tensors, {_KEY: content})
        self.write_log([json.dumps(each) for each in metrics])
        save_checkpoint(self.folder / LAST, Checkpoint(self.spec.blueprint, state.policy_weights))
        if progress.best:
            save_checkpoint(self.folder / BEST, Checkpoint(self.spec.blueprint, progress.best))


def load_progress(folder: Path) -> TrainingProgress:
    """Reads the progress of a training run.

    Raises:
        TrainingError: The state is missing or damaged.
    """
    path = folder / STATE
    stored, metadata = read_checked(path, TrainingError, REMEDY)
    tensors: dict[str, dict[str, Any]] = {
        kind: {} for kind in ("weights", "moments", "average", "best")
    }
    try:
        for key, tensor in stored.items():
            kind, _, name = key.partition("/")
            tensors[kind][name] = tensor
        # Not `strict_json`: losses may be infinite just before a divergence.
        content = parse(_Content, json.loads((metadata or {})[_KEY]), str(path))
    except (KeyError, ValueError, RecursionError) as error:
        raise TrainingError(f"{path} is damaged ({error!r}). {REMEDY}") from None
    numbers = {name: getattr(content, name) for name in _NUMBERS}
    state = TrainingState(tensors["weights"], tensors["moments"], tensors["average"], **numbers)
    return TrainingProgress(state, tensors["best"], content.metrics)


def chosen_checkpoint(folder: Path) -> Path:
    """Returns the policy that a training run ends with: its best one, or the last without any."""
    best = folder / BEST
    return best if best.is_file() else folder / LAST


def restart(folder: Path) -> Path | None:
    """Sets the folder of a training run aside, see `storage.run_folder.set_aside`."""
    return set_aside(folder, METRICS, _WHAT, TrainingError)
