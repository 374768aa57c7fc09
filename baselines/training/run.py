"""A training run: its inputs, its epochs, and its stored states."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import pydantic

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.config import Criterion, TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.rollouts import SuccessMeasure
from fleet_tools.baselines.training.state import (
    DivergedError,
    EpochMetrics,
    TrainingProgress,
    TrainingState,
)
from fleet_tools.config.values import Count, CountOrZero, Number
from fleet_tools.storage.locked_folder import Document
from fleet_tools.storage.provenance import installed_packages

VERSION = 1
"""Version of the content and meaning of `config.json`."""


class TrainingRunSpec(Document):
    """The content of `config.json`.

    Attributes:
        version: `VERSION`.
        datasets: Folders of the demonstrations, as given.
        episodes: Number of their episodes.
        content_digest: Hash of their episodes.
        blueprint: Blueprint of the policy.
        training: Configuration of training.
        validation_fraction: Fraction of the episodes for validation, and not for training.
        rollouts: Number of validation scenes of each task in which the policy is evaluated.
        rollout_every: Number of epochs between these evaluations.
        teacher: Hash of the policy to imitate; None for the episodes' actions.
        choose_by: Criterion for the best weights.
        device: Device of the computation.
        threads: Number of threads; another number rounds sums differently.
        packages: Versions of the packages on which the bits of the result depend.
    """

    version: Literal[1] = VERSION
    datasets: tuple[str, ...]
    episodes: Count
    content_digest: str
    blueprint: Blueprint
    training: TrainingConfig
    validation_fraction: Annotated[Number, pydantic.Field(ge=0, lt=1)]
    rollouts: CountOrZero
    rollout_every: Count
    teacher: str | None
    choose_by: Criterion
    device: Literal["cpu", "cuda"]
    threads: Count
    packages: dict[str, str]

    def essence(self) -> dict[str, object]:
        """Returns the properties that must be equal within one run, by name."""
        parts = self.model_dump(mode="json")
        training = {f"training.{name}": value for name, value in parts.pop("training").items()}
        blueprint = parts.pop("blueprint")  # the rest of it follows from the data
        return {
            **parts,
            **training,
            "the policy's config": blueprint["config"],
            "what is read": blueprint.get("reading"),
            "the hash of its scaling": self.blueprint.scaling.rounded_digest(),
        }


def packages() -> dict[str, str]:
    """Returns the versions of the packages on which the bits of training depend."""
    return installed_packages(("numpy", "torch"))


@dataclass(frozen=True)
class Hooks:
    """Functions that a run calls.

    Attributes:
        save: Stores progress.
        measure_success: Evaluates a policy in rollouts.
        after_batch: Called after each batch.
        after_epoch: Called after each epoch, with the progress.
        stop: Whether to end after this batch.
    """

    save: Callable[[TrainingProgress], None]
    measure_success: SuccessMeasure = lambda checkpoint, /, tasks=None: None
    after_batch: Callable[[], None] = lambda: None
    after_epoch: Callable[[TrainingProgress], None] = lambda progress: None
    stop: Callable[[], bool] = lambda: False


def run(
    spec: TrainingRunSpec,
    training: Trajectories,
    validation: Trajectories | None,
    progress: TrainingProgress,
    hooks: Hooks,
    *,
    save_every_s: float = 10.0,
) -> TrainingProgress:
    """Trains to the last epoch, or until a hook stops it.

    Args:
        spec: The run's inputs.
        training: Training data.
        validation: Trajectories for validation, if there are any.
        progress: Progress at the beginning.
        hooks: Functions that the run calls.
        save_every_s: Time between two stored states, s; longer while an epoch is validated.

    Returns:
        The progress at the end, which is stored.

    Raises:
        DivergedError: The loss is not finite; the state at the end of the epoch before is stored.
        OSError: The disk is full or gone.
    """
    saved = time.monotonic()

    def save_if_due(progress: Callable[[], TrainingProgress | None]) -> None:
        nonlocal saved
        if time.monotonic() - saved >= save_every_s and (present := progress()) is not None:
            hooks.save(present)
            saved = time.monotonic()

    def after_batch(snapshot: Callable[[], TrainingState]) -> bool:
        hooks.after_batch()
        save_if_due(lambda: _within_epoch(progress, snapshot()))
        return not hooks.stop()

    blueprint, config = spec.blueprint, spec.training
    while progress.state.epoch < config.epochs and not hooks.stop():
        started = time.perf_counter()
        try:
            state = train(
                blueprint, training, config, progress.state, epochs=1, after_batch=after_batch
            )
        except DivergedError:
            hooks.save(progress)
            raise
        progress = replace(progress, state=state)
        if state.batch > 0:
            break
        seconds = round(time.perf_counter() - started, 3)
        metrics = _metrics(spec, validation, state, hooks, seconds)
        progress = progress.after_epoch(metrics, spec.choose_by)
        hooks.after_epoch(progress)
        save_if_due(lambda: progress)  # noqa: B023
    hooks.save(progress)
    return progress


def _within_epoch(progress: TrainingProgress, state: TrainingState) -> TrainingProgress | None:
    # At the end of an epoch, its metrics are part of the progress, and not yet computed.
    return replace(progress, state=state) if state.batch > 0 else None


def _metrics(
    spec: TrainingRunSpec,
    validation: Trajectories | None,
    state: TrainingState,
    hooks: Hooks,
    seconds: float,
) -> EpochMetrics:
    blueprint, config, weights = spec.blueprint, spec.training, state.policy_weights
    loss = None if validation is None else validate(blueprint, validation, config, weights)
    rollouts = None
    due = state.epoch % spec.rollout_every == 0 or state.epoch == config.epochs
    if due and spec.rollouts > 0:
        rollouts = hooks.measure_success(Checkpoint(blueprint, weights))
    return EpochMetrics(
        epoch=state.epoch,
        loss=state.loss,
        validation_loss=loss,
        learning_rate=config.rate(state.epoch),
        rollouts=rollouts,
        seconds=seconds,
    )
