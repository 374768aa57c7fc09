"""The folder of a training run. A kill of the process loses little.

    config.json             the inputs of the run (`run.TrainingRunSpec`)
    state.safetensors       the state to resume from (`state.TrainingProgress`)
    metrics.jsonl           a line for each epoch (`state.EpochMetrics`)
    last.safetensors        the policy at that state (`policies.checkpoint`)
    best.safetensors        the policy after the best epoch (`state.best_epoch`)

The last three follow from the state, which is stored first.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fleet_tools.baselines.policies.checkpoint import (
    Checkpoint,
    CheckpointError,
    require_weights,
    save_checkpoint,
)
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import batches_of
from fleet_tools.baselines.training.run import VERSION, TrainingRunSpec
from fleet_tools.baselines.training.state import (
    EpochMetrics,
    Tensors,
    TrainingError,
    TrainingProgress,
    TrainingState,
    best_epoch,
)
from fleet_tools.config.values import CountOrZero, NonNegative, Value, parse
from fleet_tools.storage.run_folder import REMEDY, STATE, RunKind, RunWriter

METRICS, LAST, BEST = "metrics.jsonl", "last.safetensors", "best.safetensors"

TRAINING_RUN = RunKind(
    what="a training run",
    maker="python -m fleet_tools.baselines.train",
    error=TrainingError,
    document=TrainingRunSpec,
    version=VERSION,
    log_name=METRICS,
    state_key="fleet_tools_training",
)
"""Folders that hold training runs."""

_KINDS = ("weights", "moments", "average", "best")
_NUMBERS = ("epoch", "batch", "squares", "steps")


class _Content(Value):
    """Content of a state besides its tensors, see `TrainingState`."""

    epoch: CountOrZero
    batch: CountOrZero
    squares: NonNegative
    steps: CountOrZero
    metrics: tuple[EpochMetrics, ...]


class TrainingWriter(RunWriter[TrainingRunSpec]):
    """Stores a new training run, or resumes one that was begun with the same options.

    Args:
        folder: Created if it does not exist; otherwise empty, or the folder of the same run.
        spec: The run's inputs.

    Raises:
        TrainingError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, folder: Path, spec: TrainingRunSpec) -> None:
        super().__init__(TRAINING_RUN, folder, spec)

    def load(self, trajectories: Trajectories) -> TrainingProgress:
        """Returns the stored progress, or the initial one.

        Args:
            trajectories: Training data of the run.

        Raises:
            TrainingError: The state is missing or damaged, or not one of this run.
        """
        if self.has_state():
            progress = load_progress(self.folder)
            if found := defects(self.document, trajectories, progress):
                raise TrainingError(f"{self.folder / STATE} is damaged: {found}. {REMEDY}")
            return progress
        spec = self.document
        weights = spec.blueprint.create(spec.training.seed).state_dict()
        return TrainingProgress(TrainingState.initial(weights))

    def save(self, progress: TrainingProgress) -> None:
        """Stores the progress.

        Raises:
            OSError: The disk is full or gone; the progress before is still stored.
        """
        state, blueprint = progress.state, self.document.blueprint
        kinds = (state.weights, state.moments, state.average, progress.best)
        tensors = {
            f"{kind}/{name}": tensor
            for kind, named in zip(_KINDS, kinds, strict=True)
            for name, tensor in named.items()
        }
        numbers = {name: getattr(state, name) for name in _NUMBERS}
        metrics = [each.model_dump() for each in progress.metrics]
        self.save_state(tensors, {**numbers, "metrics": metrics}, [*map(json.dumps, metrics)])
        save_checkpoint(self.folder / LAST, Checkpoint(blueprint, state.policy_weights))
        if progress.best:
            save_checkpoint(self.folder / BEST, Checkpoint(blueprint, progress.best))


def load_progress(folder: Path) -> TrainingProgress:
    """Reads the progress of a training run.

    Raises:
        TrainingError: The state is missing or damaged.
    """
    return TRAINING_RUN.read_state(folder, _progress)


def _progress(tensors: dict[str, torch.Tensor], data: Any) -> TrainingProgress:
    kinds: dict[str, dict[str, torch.Tensor]] = {kind: {} for kind in _KINDS}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        kinds[kind][name] = tensor
    content = parse(_Content, data, "It")
    numbers = {name: getattr(content, name) for name in _NUMBERS}
    state = TrainingState(kinds["weights"], kinds["moments"], kinds["average"], **numbers)
    return TrainingProgress(state, kinds["best"], content.metrics)


def chosen_checkpoint(folder: Path) -> Path:
    """Returns the final policy of a training run: its best one, or the last without any."""
    best = folder / BEST
    return best if best.is_file() else folder / LAST


def restart(folder: Path) -> Path | None:
    """Sets the folder of a training run aside, see `RunKind.set_aside`."""
    return TRAINING_RUN.set_aside(folder)


def defects(spec: TrainingRunSpec, trajectories: Trajectories, progress: TrainingProgress) -> str:
    """Returns contradictions of a stored progress with its run or itself.

    The run and the number of epochs determine names, shapes and dtypes of tensors, and all counts.
    Losses and finite weights are not checked.

    Args:
        spec: The run's inputs.
        trajectories: Training data of the run.
        progress: The stored progress.

    Returns:
        The contradictions; empty if there is none.
    """
    network = spec.blueprint.create_empty()
    found = list(_of_tensors(spec, network, progress)) or [
        *_of_metrics(spec, progress),
        *_of_counts(spec, trajectories, progress.state),
    ]
    return "; ".join(found)


def _of_metrics(spec: TrainingRunSpec, progress: TrainingProgress) -> Iterator[str]:
    metrics, state = progress.metrics, progress.state
    if [each.epoch for each in metrics] != list(range(1, state.epoch + 1)):
        yield f"it has the metrics of {len(metrics)} epochs, and not of each of {state.epoch}"
    for each in metrics:
        due = each.epoch % spec.rollout_every == 0 or each.epoch == spec.training.epochs
        if (
            each.learning_rate != spec.training.rate(each.epoch)
            or (each.validation_loss is None) != (spec.validation_fraction == 0)
            or (each.rollouts is None) != (spec.rollouts == 0 or not due)
            or any(loss is not None and loss < 0 for loss in (each.loss, each.validation_loss))
        ):
            yield f"the metrics of epoch {each.epoch} do not match this run"


def _of_counts(
    spec: TrainingRunSpec, trajectories: Trajectories, state: TrainingState
) -> Iterator[str]:
    config = spec.training
    if state.epoch > config.epochs:
        yield f"it has done {state.epoch} of {config.epochs} epochs"
        return
    counts = [len(batches_of(trajectories, config, epoch)) for epoch in range(state.epoch)]
    last = state.epoch - (state.batch == 0)  # sums of an epoch last until the next one begins
    order = batches_of(trajectories, config, max(last, 0))
    done = order[: state.batch] if state.batch > 0 else order if state.epoch > 0 else []
    if state.batch >= len(order) or (state.batch > 0 and state.epoch == config.epochs):
        yield f"it has done {state.batch} batches after epoch {state.epoch}"
    if state.steps != sum(max(trajectories.imitated_steps(items), 1) for items in done):
        yield f"it has counted {state.steps} steps"
    updates = sum(counts) + state.batch
    steps = {each.item() for name, each in state.moments.items() if name.endswith("/step")}
    if steps != ({updates} if updates else set()):
        yield f"the moments are not those after {updates} updates"


def _of_tensors(
    spec: TrainingRunSpec, network: nn.Module, progress: TrainingProgress
) -> Iterator[str]:
    state, weights = progress.state, network.state_dict()
    yield from _other_tensors("weights", weights, state.weights)
    if state.moments:
        yield from _other_tensors("moments", expected_moments(network), state.moments)
    if any(bool((each < 0).any()) for name, each in state.moments.items() if name.endswith("_sq")):
        yield "a second moment is negative"
    averaged = spec.training.ema_decay > 0 and (state.epoch > 0 or state.batch > 0)
    yield from _other_tensors("averages", _parameters(network) if averaged else {}, state.average)
    best = best_epoch(progress.metrics, spec.choose_by)
    if (best is None) != (not progress.best):
        yield "the best weights do not match its best epoch"
    elif best is not None:
        yield from _other_tensors("best weights", weights, progress.best)
        if (
            best.epoch == state.epoch
            and state.batch == 0
            and not _same(progress.best, state.policy_weights)
        ):
            yield "the best weights do not match its last epoch"


def expected_moments(network: nn.Module) -> dict[str, torch.Tensor]:
    """Returns tensors with the names, shapes and dtypes of a network's moments; see `moments_of`.

    Args:
        network: The network; its numbers do not matter.
    """
    return {
        f"{name}/{moment}": torch.empty((), device="meta") if moment == "step" else parameter
        for name, parameter in _parameters(network).items()
        for moment in ("step", "exp_avg", "exp_avg_sq")
    }


def _parameters(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: each for name, each in network.named_parameters() if each.requires_grad}


def _other_tensors(
    what: str, expected: Mapping[str, torch.Tensor], stored: Tensors
) -> Iterator[str]:
    try:
        require_weights(expected, stored)
    except CheckpointError as error:
        yield f"{what}: {error}".rstrip(".")


def _same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
