"""Whether a stored state of training is one that a run can have reached."""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from fleet_tools.baselines.policies.errors import CheckpointError
from fleet_tools.baselines.policies.weights import require_weights
from fleet_tools.baselines.training.loop import batches_of
from fleet_tools.baselines.training.progress import TrainingProgress, best_epoch
from fleet_tools.baselines.training.run_spec import TrainingRunSpec
from fleet_tools.baselines.training.state import Tensors, TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories


def defects(spec: TrainingRunSpec, trajectories: Trajectories, progress: TrainingProgress) -> str:
    """Says in what a stored progress contradicts its run or itself.

    Names, shapes and dtypes of tensors and all counts follow from the run and the number of epochs;
    losses and finite weights are taken as they are.

    Args:
        spec: What the run depends on.
        trajectories: Trajectories that it learns from.
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
            yield f"the metrics of epoch {each.epoch} are not those of this run"


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
        yield "the best weights are not those of its best epoch"
    elif best is not None:
        yield from _other_tensors("best weights", weights, progress.best)
        if (
            best.epoch == state.epoch
            and state.batch == 0
            and not _same(progress.best, state.policy_weights)
        ):
            yield "the best weights are not those of its last epoch"


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
