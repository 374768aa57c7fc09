"""Effects of a merge: distances, losses and barriers before and after alignment."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import torch

from fleet_merging.average import average, flatten
from fleet_merging.barrier import Measure, loss_barrier
from fleet_merging.errors import NotInvariantError
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.group import Permutation
from fleet_merging.symmetry.table import State

_TOLERANCE = 1e-3
"""Largest change of a loss by a permutation, relative to the loss or 1."""


@dataclass(frozen=True)
class Connectivity:
    """Linear connectivity of models: their distances, and the losses between them.

    Attributes:
        distance: Largest Euclidean distance between the weights of two models.
        loss: Loss of the average of the models; None if no loss can be measured.
        barrier: Highest loss barrier between two models; None if no loss can be measured, or if
            there is only one model.
    """

    distance: float
    loss: float | None = None
    barrier: float | None = None


@dataclass(frozen=True)
class MergeReport:
    """Measurements of a merge.

    Attributes:
        losses: Loss of each model alone; empty if no loss can be measured.
        before: Connectivity of the models as given.
        after: Connectivity of the permuted models; its loss is the result's.
    """

    losses: tuple[float, ...]
    before: Connectivity
    after: Connectivity


def measure_merge(
    problem: MergeProblem, merged: MergeResult, points: int, network: torch.nn.Module | None = None
) -> MergeReport:
    """Measures a merge; the data holders' losses must be deterministic without a seed.

    `points` is the number of points on the line between two models. `network` is the result as a
    module, for results of another form, such as an ensemble; without it, their loss is not
    measured.

    Raises:
        NotInvariantError: A permutation changes a model's loss. So the table is false, or the loss
            is not deterministic.
    """
    loss, finish = pooled_loss(problem), problem.finish
    permutations = merged.permutations or [problem.group.identity() for _ in problem.models]
    permuted = problem.permuted(permutations)
    if loss is None:
        return MergeReport(
            (), Connectivity(_distance(problem.models)), Connectivity(_distance(permuted))
        )
    losses = tuple(loss(model) for model in problem.models)
    _require_invariant(losses, permuted, permutations, loss)

    def finished_loss(model: State) -> float:
        return loss(finish(model))

    def connectivity(models: Sequence[State], of_mean: float) -> Connectivity:
        heights = [
            loss_barrier(finished_loss, *pair, points).height for pair in combinations(models, 2)
        ]
        return Connectivity(_distance(models), of_mean, max(heights, default=None))

    before = connectivity(
        problem.models, finished_loss(average(problem.models, problem.averaging_weights))
    )
    if merged.is_ensemble or merged.module is not problem.module:  # no model of the models' form
        own = None if network is None else _loss_of_network(problem, network)
        return MergeReport(losses, before, Connectivity(before.distance, own, before.barrier))
    return MergeReport(losses, before, connectivity(permuted, loss(merged.state)))


def pooled_loss(problem: MergeProblem) -> Measure | None:
    """Returns the function that measures a model's loss on all data; None without data holders.

    These are all data holders', weighted by the averaging weights, or else the shared ones.
    """
    if problem.data_holders:
        return partial(
            TrafficMeter().ask_mean_loss, problem.data_holders, problem.normalized_weights.tolist()
        )
    if problem.shared_data_holder is not None:
        return partial(TrafficMeter().ask_mean_loss, [problem.shared_data_holder], [1.0])
    return None


@torch.no_grad()
def _loss_of_network(problem: MergeProblem, network: torch.nn.Module) -> float | None:
    holders, weights = problem.data_holders, problem.normalized_weights.tolist()
    if not all(isinstance(holder, LocalDataHolder) for holder in holders):
        return None  # they answer queries only about the models' form
    return sum(
        weight * float(holder.loss(network, None))
        for weight, holder in zip(weights, holders, strict=True)
        if isinstance(holder, LocalDataHolder)
    )


def as_text(report: MergeReport) -> str:
    """Returns a report as a table of a few lines."""
    lines = [f"{'':22}{'as given':>14}{'aligned':>14}"]
    for title, before, after in (
        ("largest distance", report.before.distance, report.after.distance),
        ("loss of the merge", report.before.loss, report.after.loss),
        ("largest barrier", report.before.barrier, report.after.barrier),
    ):
        if before is not None and after is not None:
            lines.append(f"{title:22}{before:14.4g}{after:14.4g}")
    if report.losses:
        lines.append(f"losses of the models  {' '.join(f'{loss:.4g}' for loss in report.losses)}")
    else:
        lines.append("No losses or barriers, because there are no data.")
    return "\n".join(lines)


def _distance(models: Sequence[State]) -> float:
    distances = torch.pdist(torch.stack([flatten(model) for model in models]))
    return float(distances.max()) if len(models) > 1 else 0.0


def _require_invariant(
    losses: Sequence[float],
    permuted: Sequence[State],
    permutations: Sequence[Permutation],
    loss: Measure,
) -> None:
    for index, (before, model, permutation) in enumerate(
        zip(losses, permuted, permutations, strict=True)
    ):
        soft = any(
            isinstance(value, torch.Tensor) and value.is_floating_point()
            for value in permutation.values()
        )
        after = before if soft else loss(model)
        if not abs(after - before) <= _TOLERANCE * max(1.0, abs(before)):
            raise NotInvariantError(
                f"Model {index} has the loss {before:.6g}, and {after:.6g} after its units are "
                "reordered. Either the table is wrong (`symmetry.check.check` names the axis), or "
                "the loss is random: put the data holders' models into eval mode, and use all data "
                "when the seed is None."
            )
