"""What merging has changed: distances, losses and barriers, before alignment and after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from fleet_tools.baselines.merging.average import average, flat
from fleet_tools.baselines.merging.barrier import loss_barrier
from fleet_tools.baselines.merging.errors import NotInvariantError
from fleet_tools.baselines.merging.problem import Fleet, Merged
from fleet_tools.baselines.merging.symmetry.table import State

Finish = Callable[[State], State]


@dataclass(frozen=True)
class Side:
    """Models as they are, or as they were aligned.

    Attributes:
        distance: Euclidean, of weights: the largest between two models.
        loss: Of their average; None where nothing measures one.
        barrier: The largest on a line between two models; None likewise, and for one model.
    """

    distance: float
    loss: float | None = None
    barrier: float | None = None


@dataclass(frozen=True)
class Report:
    """A merge, measured.

    Attributes:
        losses: Of each model by itself; empty where nothing measures them.
        before: Of the models as they are.
        after: Of the models as the method permuted them. Its loss is the merged model's.
    """

    losses: tuple[float, ...]
    before: Side
    after: Side


def report(
    fleet: Fleet,
    merged: Merged,
    loss: Callable[[State], float] | None = None,
    finish: Finish = dict,
    points: int = 11,
) -> Report:
    """Measures a merge.

    Args:
        fleet: What was merged.
        merged: What came of it.
        loss: Of a model; the same for the same model.
        finish: See `spec.Spec`.
        points: On each line; see `loss_barrier`.

    Raises:
        FleetError: `points` is even, or below 3.
        NotInvariantError: A model's loss is another once its units are reordered, so the table is
            not the model's, or the loss is not the same twice.
    """
    permuted = fleet.permuted(merged.permutations)
    if loss is None:
        return Report((), Side(_distance(fleet.models)), Side(_distance(permuted)))
    losses = tuple(loss(model) for model in fleet.models)
    _require_invariant(merged, losses, permuted, loss)

    def finished(model: State) -> float:
        return loss(finish(model))

    def side(models: Sequence[State], mean: State) -> Side:
        heights = [loss_barrier(finished, *pair, points).height for pair in combinations(models, 2)]
        return Side(_distance(models), finished(mean), max(heights, default=None))

    naive = average(fleet.models, fleet.weights)
    return Report(losses, side(fleet.models, naive), side(permuted, merged.state))


def as_text(report: Report) -> str:
    """A table of a few lines."""
    lines = [f"{'':22}{'as they are':>14}{'aligned':>14}"]
    rows = [("largest distance", "distance")]
    if report.before.loss is not None:
        rows.append(("loss of the average", "loss"))
    if report.before.barrier is not None:
        rows.append(("largest barrier", "barrier"))
    for title, name in rows:
        before, after = getattr(report.before, name), getattr(report.after, name)
        lines.append(f"{title:22}{before:14.4g}{after:14.4g}")
    if report.losses:
        lines.append(f"losses of the models  {' '.join(f'{loss:.4g}' for loss in report.losses)}")
    else:
        lines.append("No losses or barriers: the spec has neither `shared` nor `robots`.")
    return "\n".join(lines)


def _distance(models: Sequence[State]) -> float:
    vectors = [flat(model) for model in models]
    pairs = combinations(vectors, 2)
    return max((float(torch.linalg.vector_norm(a - b)) for a, b in pairs), default=0.0)


def _require_invariant(merged: Merged, losses, permuted, loss, tolerance: float = 1e-3) -> None:
    for at, (before, model, permutation) in enumerate(
        zip(losses, permuted, merged.permutations, strict=True)
    ):
        soft = any(
            isinstance(value, torch.Tensor) and value.is_floating_point()
            for value in permutation.values()
        )
        after = before if soft else loss(model)
        if not abs(after - before) <= tolerance * max(1.0, abs(before)):
            raise NotInvariantError(
                f"Model {at} has the loss {before:.6g}, and {after:.6g} once its units are "
                "reordered. Either the table is wrong (`check.check` names the axis), or the loss "
                "is drawn: put the robots' models into eval mode, and ask for all data where the "
                "seed is None."
            )
