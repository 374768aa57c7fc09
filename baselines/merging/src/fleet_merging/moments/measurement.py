"""Second moments of the inputs of affine maps: measurement, noise, and fitted matrices."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from fleet_merging.errors import MergeError
from fleet_merging.moments.affine_maps import AffineMap, affine_maps
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.rows import input_rows
from fleet_merging.symmetry.table import State

_LEAST = 2.0**-126
"""Smallest mean square of inputs; where there are none, a fit returns the prior."""

Target = Literal["none", "inputs", "outputs", "labels"]
"""Factors of a map's inputs in products: none, a teacher's inputs or outputs of the same map, or
the labels of the data."""


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """Arguments of a model, and the targets of its last affine map.

    Attributes:
        arguments: Arguments of the model.
        labels: One row for each row of the last map, (n, out); None if there are no labels.
        weights: A number for each row, 0 for rows without a label, (n,); None for ones. Or one for
            each of equal parts of a row, (n, parts), such as the actions of a chunk, which may
            exceed an episode. See `AffineMap.parts`.
    """

    arguments: tuple[Any, ...]
    labels: torch.Tensor | None = None
    weights: torch.Tensor | None = None


Batches = Callable[[], Iterable[LabelledBatch]]
"""Returns a pass over all data, which need not be padded."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of an affine map: means over rows x, each with a last entry of 1.

    If parts of labels have weights, each part counts as a group. The weights of all parts then have
    the mean 1, so that moments of pooled data remain weighted sums.

    Attributes:
        inputs: Mean of x x^T, float64, (groups, in + 1, in + 1).
        targets: Mean of x t^T for the targets t, (groups, in + 1, k); k is 0 without targets.
    """

    inputs: torch.Tensor
    targets: torch.Tensor


def combine(moments: Iterable[Moments], weights: Iterable[float]) -> Moments:
    """Returns the weighted sum of moments; weights that sum to 1 give the moments of pooled data.

    It takes moments one after the other, so an iterator keeps few in memory at a time.
    """
    inputs, targets = torch.zeros(()), torch.zeros(())
    for each, weight in zip(moments, weights, strict=True):
        inputs = inputs + weight * each.inputs
        targets = targets + weight * each.targets
    return Moments(inputs, targets)


@torch.no_grad()
def measure_moments(
    model: torch.nn.Module,
    batches: Iterable[LabelledBatch],
    state: State,
    names: Sequence[str],
    target: Target,
    teacher: State | None = None,
    beside: Sequence[State] = (),
    gate: RowGate | None = None,
) -> dict[str, Moments]:
    """Measures moments of affine maps over all batches.

    Args:
        model: The architecture; it runs in evaluation mode.
        batches: The data.
        state: Weights of the measured model.
        names: Names of the maps, see `affine_maps`.
        target: Factor of the inputs in products.
        teacher: Weights of the model that gives the targets "inputs" and "outputs".
        beside: Weights of further models; their inputs of the same map follow the model's.
        gate: Multiplies the inputs of each of these models, each with its own final 1; None for
            none.

    Returns:
        Moments by map. With "inputs", each target also has a last entry of 1.

    Raises:
        MergeError: The model has no such map or does not reach it, or there are no data. Or labels
            are missing or do not fit the map's rows.
    """
    maps = affine_maps(model)
    asked = names if gate is None else (*names, gate.map)
    if unknown := [name for name in asked if name not in maps]:
        raise MergeError(
            f"The model has no affine map {', '.join(unknown)}. It has {', '.join(maps)}."
        )
    was_training = model.training
    model.eval()
    sums: dict[str, _Sum] = {name: _Sum() for name in names}
    try:
        for batch in batches:
            read = _side_by_side(model, (state, *beside), batch.arguments, names, gate)
            taught = (
                input_rows(model, teacher, batch.arguments, names) if teacher is not None else {}
            )
            for name in names:
                if name not in read:
                    raise MergeError(f"The model does not apply {name!r} to these data.")
                sums[name].add(*_rows_and_targets(maps[name], batch, read, taught, target, teacher))
    finally:
        model.train(was_training)
    return {name: total.mean(name) for name, total in sums.items()}


def solve(moments: Moments, prior: torch.Tensor, ridge: float) -> torch.Tensor:
    """Returns the M that minimizes the mean of (x M - t)² + ridge s (M - prior)².

    Here s is the mean square of the entries of x. So directions without inputs keep the prior.
    Moments with noise need a ridge that is larger than the noise.

    Args:
        moments: Moments of inputs x and targets t, of all outputs or of equal parts of them.
        prior: Matrices (groups, in + 1, out).
        ridge: Weight of the prior, positive.

    Returns:
        Matrices (groups, in + 1, out), float64.
    """
    solved, parts = [], len(moments.inputs) // len(prior)
    priors = prior.unflatten(2, (parts, -1)).transpose(1, 2).flatten(0, 1)
    for G, C, M in zip(moments.inputs, moments.targets, priors, strict=True):
        scale = max(float(G.diagonal().mean()), _LEAST)
        damping = ridge * scale * torch.eye(len(G), dtype=G.dtype)
        factor, failed = torch.linalg.cholesky_ex(G + damping)
        if failed:  # noise has made some directions negative
            values, vectors = torch.linalg.eigh(G)
            G = vectors * values.clamp(min=0) @ vectors.T
            factor = torch.linalg.cholesky(G + damping)
        solved.append(M + torch.cholesky_solve(C - G @ M, factor))
    return torch.stack(solved).unflatten(0, (-1, parts)).transpose(1, 2).flatten(2)


def with_noise(
    moments: Mapping[str, Moments], noise: float, seed: tuple[int, ...]
) -> dict[str, Moments]:
    """Returns moments with noise, the same on both sides of the diagonal of the inputs'.

    The noise is a standard deviation, relative to the root mean square of each matrix's entries.
    """
    generator = np.random.default_rng(seed)

    def noisy(values: torch.Tensor) -> torch.Tensor:
        scale = noise * float(values.square().mean().sqrt())
        return values + scale * torch.from_numpy(generator.standard_normal(tuple(values.shape)))

    def symmetric(values: torch.Tensor) -> torch.Tensor:
        upper = torch.triu(noisy(values))
        return upper + torch.triu(upper, 1).transpose(-2, -1)

    return {
        name: Moments(symmetric(each.inputs), noisy(each.targets)) for name, each in moments.items()
    }


def _side_by_side(
    model: torch.nn.Module,
    states: Sequence[State],
    arguments: tuple[Any, ...],
    names: Sequence[str],
    gate: RowGate | None,
) -> dict[str, torch.Tensor]:
    """Returns the rows of several models, each map's side by side."""
    asked = names if gate is None else {*names, gate.map}
    read = [input_rows(model, state, arguments, asked) for state in states]
    if gate is not None and gate.map in (rows := read[gate.reader]):
        weights = {
            name: gate.weights(rows[gate.map], rows[name].shape[1])
            for name in names
            if name in rows
        }
        read = [
            {
                name: _with_ones(rows[name]) * each[:, index, None].double()
                for name, each in weights.items()
            }
            for index, rows in enumerate(read)
        ]
    return {name: torch.cat([rows[name] for rows in read], -1) for name in read[0]}


@dataclass(eq=False)
class _Sum:
    """Sums of products over rows, added in place: copies would cost more than the products.

    Attributes:
        moments: The sums; None before the first row.
        count: Sum of the weights of the rows, the mean over parts.
    """

    moments: Moments | None = None
    count: float = 0.0

    def add(self, rows: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> None:
        if weights is not None and weights.dim() == 2:
            return self._add_parts(rows, targets, weights)
        weighted = rows if weights is None else rows * weights[:, None]
        transposed = weighted.transpose(1, 2)
        if self.moments is None:
            self.moments = Moments(*(_zeros(transposed, each) for each in (rows, targets)))
        _add_product(self.moments.inputs, transposed, rows)
        _add_product(self.moments.targets, transposed, targets)
        self.count += rows.shape[1] if weights is None else float(weights.sum())

    def _add_parts(self, rows: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Adds rows with weights (n, parts); rows of equal weights are multiplied once."""
        parts, size = weights.shape[1], rows.shape[2]
        weighted = targets[0].unflatten(1, (parts, -1)) * weights[..., None]  # (n, parts, k)
        if self.moments is None:
            self.moments = Moments(
                rows.new_zeros(parts, size, size), rows.new_zeros(parts, size, weighted.shape[2])
            )
        kinds, kind = torch.unique(weights, dim=0, return_inverse=True)
        for index, own in enumerate(kinds):
            some = rows[0, kind == index]
            self.moments.inputs.add_(own[:, None, None] * (some.T @ some))
        products = rows[0].T @ weighted.flatten(1)
        self.moments.targets.add_(products.unflatten(1, (parts, -1)).transpose(0, 1))
        self.count += float(weights.sum()) / parts

    def mean(self, name: str) -> Moments:
        if self.moments is None or not self.count > 0:
            raise MergeError(f"No data reached {name!r}, so its moments cannot be measured.")
        return combine([self.moments], [1 / self.count])


def _rows_and_targets(
    each: AffineMap,
    batch: LabelledBatch,
    read: dict[str, torch.Tensor],
    taught: dict[str, torch.Tensor],
    target: Target,
    teacher: State | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    rows = _with_ones(read[each.name])
    if target == "none":
        return rows, rows[..., :0], None
    if target == "labels":
        if batch.labels is None or len(batch.labels) != rows.shape[1]:
            given = "none" if batch.labels is None else f"{len(batch.labels)}"
            raise MergeError(
                f"The map {each.name!r} reads {rows.shape[1]} rows, but there are {given} labels. "
                "Give labels only for the map that returns the model's outputs, one for each row."
            )
        labels = batch.labels.to(rows).unflatten(1, (each.groups, -1)).transpose(0, 1)
        weights = None if batch.weights is None else batch.weights.to(rows)
        if weights is not None and weights.dim() > 1:
            parts = weights.shape[1]
            if each.groups > 1 or labels.shape[2] % parts:
                raise MergeError(
                    f"Labels of {each.name!r} have weights in {parts} parts, which do not divide "
                    f"{labels.shape[2]} outputs of {each.groups} group(s). Give one weight for "
                    "each row."
                )
        return rows, labels, weights
    if teacher is None or each.name not in taught:
        raise MergeError(
            f"The targets {target!r} of {each.name!r} need a teacher that has this map."
        )
    targets = _with_ones(taught[each.name])
    if target == "outputs":
        targets = _product(targets, each.matrix(teacher))
    return rows, targets, None


def _with_ones(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(rows.double(), (0, 1), value=1.0)


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    product = _zeros(one, other)
    _add_product(product, one, other)
    return product


def _zeros(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return one.new_zeros(len(one), one.shape[1], other.shape[2])


def _add_product(total: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> None:
    # Group by group: batched products differ in bits from one number of threads to another.
    for each, a, b in zip(total, one, other.to(one), strict=True):
        each.addmm_(a, b)
