"""Matching of one model with another by their weights: coordinate ascent on <reference, P(model)>.

It solves the least-squares problem one name at a time (Ainsworth et al. 2023), after an initial
guess from inputs to outputs. Only steps that increase the objective are taken, so it ends.

The step of a name that occurs once in each tensor is a linear assignment. This case comes first.
For a name on two axes of a tensor (recurrent weights), it is a quadratic assignment. For a name
that owns others (heads), it is a nested one. If a name is quadratic, a second ascent starts from a
random walk of Git Re-Basin's own steps, and the better result counts.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fleet_merging.errors import PermutationError
from fleet_merging.matching.assignment import (
    Indices,
    UnfoldedPair,
    assign_nested,
    assign_quadratic,
    quadratic_gradient,
    total_product,
    unfold_models,
)
from fleet_merging.matching.sinkhorn import project_hard
from fleet_merging.symmetry.group import Permutation, PermutationGroup
from fleet_merging.symmetry.table import State, Symmetry, require_alike

_SWEEPS = 100
"""Maximum number of sweeps; an ascent ends sooner when no step increases the objective."""

_TOLERANCE = 0.05
"""Smallest increase that counts, as a fraction of the mean contribution of a unit of equal
models."""

_Pairs = Mapping[str, Sequence[UnfoldedPair]]
"""The pairs that each name permutes."""


@torch.no_grad()
def match_weights(
    symmetry: Symmetry,
    reference: State,
    model: State,
    generator: np.random.Generator,
    start: Permutation | None = None,
) -> dict[str, np.ndarray]:
    """Returns a hard element P under which P(model) is close to a reference, a local optimum.

    The ascent begins at `start`, the identity if None, unless the initial guess is closer. The
    generator draws the order of names in each sweep.
    """
    require_alike([reference, model])
    group, pairs = symmetry.group(model), unfold_models(symmetry, reference, model)
    ascent = CoordinateAscent(group, pairs)
    begin = group.tensors(group.identity() if start is None else start)
    guess = ascent.initial_guess()
    better = guess if total_product(pairs, guess) > total_product(pairs, begin) else begin
    current = ascent.climb(better, generator)
    if ascent.quadratic:
        other = ascent.climb(ascent.random_walk(begin, generator), generator)
        value = total_product(pairs, current)
        # Up to a thousandth counts as equal: barriers were lower after the guess from the inputs.
        if total_product(pairs, other) > value + 1e-3 * abs(value):
            current = other
    return {name: index.numpy() for name, index in current.items()}


class CoordinateAscent:
    """The steps of one matching, see `match_weights`.

    It stores products of weights, and recomputes only rows that have moved since. Names in
    `quadratic` occur on several axes of one tensor.
    """

    def __init__(self, group: PermutationGroup, pairs: Sequence[UnfoldedPair]) -> None:
        self._group, self._pairs = group, pairs
        self._names = [name for name in group.sizes if name not in group.owners]
        self._inside = {name: group.owned(name) for name in group.sizes}
        self._affected = {name: [p for p in pairs if name in p.dims] for name in group.sizes}
        self._products: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self.quadratic = {name for pair in pairs for name, on in pair.dims.items() if len(on) > 1}
        self._thresholds: dict[str, float] = {}
        self._neighbors: dict[str, set[str]] = {}  # whose steps may increase the objective again
        for name in self._names:
            value = _value_per_unit(self._affected[name], group.sizes[name][0])
            self._thresholds[name] = _TOLERANCE * value
            near = {
                group.owners.get(other, other)
                for affected in (name, *self._inside[name])
                for pair in self._affected[affected]
                for other in pair.dims
            }
            itself = self._inside[name] or name in self.quadratic
            self._neighbors[name] = near if itself else near - {name}

    def climb(self, current: Indices, generator: np.random.Generator) -> Indices:
        """Takes the steps of all names, in a new order in each sweep, while any increases."""
        pending = set(self._names)
        for _ in range(_SWEEPS):
            for name in generator.permutation(self._names).tolist():
                if name not in pending:
                    continue
                before = current
                current = self._step(name, current, self._thresholds[name], self._affected)
                pending.discard(name)
                if current is not before:
                    pending |= self._neighbors[name]
            if not pending:
                break
        return current

    def _step(self, name: str, current: Indices, threshold: float, affected: _Pairs) -> Indices:
        """Returns the element after the steps of a name without an owner, and of its inner names.

        A step is only taken if it increases the objective, of the affected pairs of each name, by
        more than the threshold. Without such a step, the result is `current` itself.
        """
        pairs = affected[name]
        if not pairs:
            return current
        if self._inside[name]:
            return self._step_owner(name, current, threshold, affected)
        others = {other: index for other, index in current.items() if other != name}
        if any(len(pair.dims[name]) > 1 for pair in pairs):
            changed = {name: self._quadratic_step(name, current[name], others, pairs)}
            gain = _gain(pairs, current, changed)
        else:
            scores = sum((self._product(p, name, others) for p in pairs), start=torch.zeros(()))
            changed = {name: project_hard(scores)}
            gain = _selected_sum(scores, changed[name]) - _selected_sum(scores, current[name])
        return current | changed if gain > threshold else current

    def _product(self, pair: UnfoldedPair, name: str, permutation: Indices) -> torch.Tensor:
        """Returns R W^T with a name's units in rows and columns, and the other names permuted."""
        others = [other for other in pair.dims if other != name]
        if sum(len(pair.dims[other]) for other in others) > 1 or (
            others and others[0] in self._group.owners
        ):
            R, W = pair.with_leading([name], permutation)
            return R @ W.T
        key = (name, id(pair))
        now = permutation[others[0]] if others else torch.empty(0, dtype=torch.long)
        if key in self._products:
            before, product = self._products[key]
            moved = (now != before).nonzero().squeeze(1)
            if len(moved) <= len(now) // 2:
                if len(moved):
                    R, W = pair.with_leading([name, *others], {})
                    change = W[:, now[moved]] - W[:, before[moved]]
                    product = product + R[:, moved].flatten(1) @ change.flatten(1).T
                    self._products[key] = now, product
                return product
        R, W = pair.with_leading([name], permutation)
        self._products[key] = now, R @ W.T
        return self._products[key][1]

    def initial_guess(self) -> Indices:
        """Returns an element found name by name, in the order of the tensors.

        Names on the other axes of a tensor resolve a name: the inputs resolve the first layer, this
        one the second. Ascent from the identity ends lower, since there the weights between
        two layers are noise to both.
        """
        current = self._group.tensors(self._group.identity())
        resolved: set[str] = set()
        in_order = dict.fromkeys(name for pair in self._pairs for name in pair.dims)
        for name in in_order:
            if name in self._group.owners:
                continue
            resolved |= {name, *self._inside[name]}
            known = [pair for pair in self._affected[name] if resolved.issuperset(pair.dims)]
            linear = [pair for pair in known if len(pair.dims[name]) == 1]
            # What is linear in a quadratic name determines the start of its step.
            for pairs in [linear] if len(linear) == len(known) else [linear, known]:
                affected = {k: [pair for pair in pairs if k in pair.dims] for k in resolved}
                current = self._step(name, current, 0.0, affected)
        return current

    # Refinements: quadratic names, and names that own others.

    def _quadratic_step(
        self, name: str, old: torch.Tensor, others: Indices, pairs: Sequence[UnfoldedPair]
    ) -> torch.Tensor:
        linear, quadratic = torch.zeros(()), []
        for pair in pairs:
            count = len(pair.dims[name])
            if count == 1:
                linear = linear + self._product(pair, name, others)
            elif count == 2:
                quadratic.append(pair.with_leading([name], others))
            else:
                raise PermutationError(
                    f"{name!r} occurs on {count} axes of one tensor; matching supports at most "
                    "two. Fix one of them with a leading `_`, or match by activations."
                )
        if not linear.dim():
            linear = torch.zeros(len(old), len(old)).to(quadratic[0][0])
        return assign_quadratic(linear, quadratic, old)

    def random_walk(self, current: Indices, generator: np.random.Generator) -> Indices:
        """Returns the best element on a walk of Git Re-Basin's steps, which may also descend.

        On this walk, the step of a quadratic name is only its linearization's. So the walk need not
        end, and passes points where ascent would stop. It is cut off after three sweeps without a
        new best.
        """
        best, highest, futile_sweeps = current, total_product(self._pairs, current), 0
        for _ in range(_SWEEPS):
            for name in generator.permutation(self._names).tolist():
                if name in self.quadratic:
                    current = current | {name: self._linearized_step(name, current)}
                else:
                    current = self._step(name, current, 0.0, self._affected)
            value = total_product(self._pairs, current)
            futile_sweeps += 1
            if value > highest + 1e-4 * abs(highest):
                best, highest, futile_sweeps = current, value, 0
            if futile_sweeps == 3:
                break
        return best

    def _linearized_step(self, name: str, current: Indices) -> torch.Tensor:
        others = {other: index for other, index in current.items() if other != name}
        terms = (
            self._product(pair, name, others)
            if len(pair.dims[name]) == 1
            else quadratic_gradient([pair.with_leading([name], others)], current[name])
            for pair in self._affected[name]
        )
        return project_hard(sum(terms, start=torch.zeros(())))

    def _step_owner(
        self, name: str, current: Indices, threshold: float, affected: _Pairs
    ) -> Indices:
        inside = self._inside[name]
        changed, gain = _step_nested(affected[name], current, name, inside)
        current = current | changed if gain > threshold else current
        for unit in inside:
            changed, gain = _step_inside(affected[unit], current, unit, name)
            current = current | changed if gain > threshold else current
        return current


def _step_nested(
    pairs: Sequence[UnfoldedPair], current: Indices, name: str, inside: Sequence[str]
) -> tuple[Indices, float]:
    """Reorders the units of a name together with the units inside them."""
    size = len(current[name])
    outer = torch.zeros(size, size, dtype=torch.float64)
    inner: Indices = {}
    for pair in pairs:
        units = [k for k in inside if k in pair.dims]
        others = {k: v for k, v in current.items() if k != name and k not in units}
        if len(pair.dims[name]) != 1:
            continue
        if len(units) == 1 and len(pair.dims[units[0]]) == 1:
            (unit,) = units
            R, W = pair.with_leading([name, unit], others)
            scores = torch.tensordot(R, W, ([2], [2]))  # pyright: ignore[reportArgumentType]
            scores = scores.permute(0, 2, 1, 3).double()
            inner[unit] = inner[unit] + scores if unit in inner else scores
        else:
            # No units inside, or several kinds in one tensor, which keep their order.
            R, W = pair.with_leading([name], others)
            for position in range(size):
                if units:
                    as_there = {k: current[k][position].expand(size, -1) for k in units}
                    _, W = pair.with_leading([name], others | as_there)
                outer[position] += (R[position] @ W.T).double().cpu()
    order, best = assign_nested(outer, inner)
    changed = {name: order} | best
    return changed, _gain(pairs, current, changed)


def _step_inside(
    pairs: Sequence[UnfoldedPair], current: Indices, name: str, owner: str
) -> tuple[Indices, float]:
    """Reorders the units inside each unit of their owner."""
    others = {k: v for k, v in current.items() if k != name}
    terms = []
    for pair in pairs:
        if len(pair.dims[name]) == len(pair.dims[owner]) == 1:
            R, W = pair.with_leading([owner, name], others)
            terms.append(torch.bmm(R, W.transpose(1, 2)))
    if not terms:
        return {}, 0.0
    changed = {name: project_hard(sum(terms, start=torch.zeros(())))}
    return changed, _gain(pairs, current, changed)


def _value_per_unit(pairs: Sequence[UnfoldedPair], units: int) -> float:
    """Returns the mean contribution of a unit to the objective of equal models."""
    zero = torch.zeros(())
    R = sum((pair.reference.double().square().sum() for pair in pairs), start=zero)
    W = sum((pair.tensor.double().square().sum() for pair in pairs), start=zero)
    return float(R * W) ** 0.5 / units


def _gain(pairs: Sequence[UnfoldedPair], current: Indices, changed: Indices) -> float:
    return total_product(pairs, current | changed) - total_product(pairs, current)


def _selected_sum(scores: torch.Tensor, index: torch.Tensor) -> float:
    return float(scores.gather(1, index.to(scores.device).unsqueeze(1)).double().sum())
