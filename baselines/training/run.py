"""A whole training: epochs, what each came to, and what is stored of them on the way."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.errors import DivergedError
from fleet_tools.baselines.training.experiment import Experiment
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.record import Record
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories


@dataclass(frozen=True)
class Hooks:
    """What a run does to the world.

    Attributes:
        save: Stores a record.
        try_out: Runs a policy; returns what came of it as JSON has it.
        after_batch: Is told that a batch is done.
        after_epoch: Is told of the record after an epoch.
        stop: Says whether to end after this batch.
    """

    save: Callable[[Record], None]
    try_out: Callable[[Checkpoint], Any] = lambda checkpoint: None
    after_batch: Callable[[], None] = lambda: None
    after_epoch: Callable[[Record], None] = lambda record: None
    stop: Callable[[], bool] = lambda: False


def run(
    experiment: Experiment,
    learned: Trajectories,
    judged: Trajectories | None,
    record: Record,
    hooks: Hooks,
    *,
    save_every_s: float = 10.0,
) -> Record:
    """Trains to the last epoch, or until it is to stop; what it returns is stored.

    Args:
        experiment: What is to be done.
        learned: To learn from.
        judged: To validate by.
        record: Where it begins.
        hooks: What it does to the world.
        save_every_s: About what a kill costs, beside an epoch's validation and rollouts.

    Raises:
        DivergedError: The loss is not finite; what is stored is the end of the epoch before.
        OSError: The disk is full or gone.
    """
    saved = time.monotonic()

    def save_now_and_then(record: Callable[[], Record | None]) -> None:
        nonlocal saved
        if time.monotonic() - saved >= save_every_s and (now := record()) is not None:
            hooks.save(now)
            saved = time.monotonic()

    def after_batch(snapshot: Callable[[], TrainingState]) -> bool:
        hooks.after_batch()
        save_now_and_then(lambda: _within_epoch(record, snapshot()))
        return not hooks.stop()

    blueprint, config = experiment.blueprint, experiment.training
    while record.state.epoch < config.epochs and not hooks.stop():
        begun = time.perf_counter()
        try:
            state = train(
                blueprint, learned, config, record.state, epochs=1, after_batch=after_batch
            )
        except DivergedError:
            hooks.save(record)
            raise
        record = replace(record, state=state)
        if state.batch > 0:
            break
        seconds = round(time.perf_counter() - begun, 3)
        record = record.with_epoch(_metrics(experiment, judged, state, hooks, seconds))
        hooks.after_epoch(record)
        save_now_and_then(lambda: record)  # noqa: B023
    hooks.save(record)
    return record


def _within_epoch(record: Record, state: TrainingState) -> Record | None:
    # At an epoch's end, its metrics belong to the record, and are yet to be computed.
    return replace(record, state=state) if state.batch > 0 else None


def _metrics(
    experiment: Experiment,
    judged: Trajectories | None,
    state: TrainingState,
    hooks: Hooks,
    seconds: float,
) -> dict[str, Any]:
    blueprint, config = experiment.blueprint, experiment.training
    loss = None if judged is None else validate(blueprint, judged, config, state.weights)
    tried = None
    due = state.epoch % experiment.rollout_every == 0 or state.epoch == config.epochs
    if due and experiment.rollouts > 0:
        tried = hooks.try_out(Checkpoint(blueprint, state.weights))
    return {
        "epoch": state.epoch,
        "loss": state.loss,
        "validation_loss": loss,
        "learning_rate": config.rate(state.epoch),
        "rollouts": tried,
        "seconds": seconds,
    }
