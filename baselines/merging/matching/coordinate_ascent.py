"""Steps that climb <reference, P(model)>, one name at a time, in three kinds.

A name that stands once in each tensor is a linear assignment; one on two axes of a tensor
(recurrent weights) a quadratic one; one that owns others (heads) a nested one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import PermutationError
from fleet_tools.baselines.merging.matching.assignment import (
    assign_nested,
    assign_quadratic,
    quadratic_gradient,
)
from fleet_tools.baselines.merging.matching.sinkhorn import project_hard
from fleet_tools.baselines.merging.symmetry.action import reorder
from fleet_tools.baselines.merging.symmetry.axes import Product
from fleet_tools.baselines.merging.symmetry.group import PermutationGroup
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

Indices = dict[str, torch.Tensor]
Step = tuple[Indices, float]
"""New index arrays of some names, and by how much the objective climbs with them."""


@dataclass(frozen=True)
class Part:
    """A tensor of the reference and of the model, unfolded: one dimension for each factor."""

    factors: Product
    reference: torch.Tensor
    tensor: torch.Tensor

    def names(self) -> list[str]:
        """The free names here, each once."""
        return list(dict.fromkeys(f.name for f in self.factors if not f.fixed))

    def places(self, name: str) -> list[int]:
        return [at for at, factor in enumerate(self.factors) if factor.name == name]

    def fronted(self, names: Sequence[str], held: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Both with the dimensions of `names` first and the rest flat; others as `held` says."""
        places = [at for name in dict.fromkeys(names) for at in self.places(name)]
        moved = reorder(self.tensor, self.factors, held)
        front = list(range(len(places)))
        R, W = (tensor.movedim(places, front) for tensor in (self.reference, moved))
        shape = (*R.shape[: len(places)], -1)
        return R.reshape(shape), W.reshape(shape)

    def value(self, held: Indices) -> float:
        return float((self.reference * reorder(self.tensor, self.factors, held)).sum())


class Ascent:
    """The steps of one matching. Products of weights are kept, and only what moved is made anew."""

    def __init__(self, group: PermutationGroup, parts: Sequence[Part]) -> None:
        self._group = group
        self._parts = parts
        self._products: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self._touched = {
            name: [part for part in parts if part.places(name)] for name in group.sizes
        }

    def value(self, held: Indices) -> float:
        """The objective."""
        return _total(self._parts, held)

    def worth(self, name: str) -> float:
        """What each unit contributes to the objective, where models are alike, on average."""
        R = sum(part.reference.double().square().sum() for part in self._touched[name])
        W = sum(part.tensor.double().square().sum() for part in self._touched[name])
        return float(R * W) ** 0.5 / self._group.sizes[name][0]

    def neighbours(self, name: str) -> set[str]:
        """The names whose own steps may climb again once this one has been taken."""
        inside = owned(self._group, name)
        near = {
            self._group.owners.get(other, other)
            for inner in (name, *inside)
            for part in self._touched[inner]
            for other in part.names()
        }
        return near if inside or self.quadratic(name) else near - {name}

    def quadratic(self, name: str) -> bool:
        """Whether a name stands on several axes of one tensor."""
        return any(len(part.places(name)) > 1 for part in self._touched[name])

    def sketched(self) -> Indices:
        """A first element: names in the order in which tensors have them, each by what is known.

        A name is told by the tensors whose other names have been told before: inputs tell the first
        layer's, this the second's. From the identity, where weights between two layers are noise to
        both, ascent ends lower.
        """
        current = self._group.tensors(self._group.identity())
        told: set[str] = set()
        in_order = dict.fromkeys(name for part in self._parts for name in part.names())
        for name in in_order:
            if name in self._group.owners:
                continue
            told |= {name, *owned(self._group, name)}
            known = [part for part in self._touched[name] if told.issuperset(part.names())]
            once = [part for part in known if len(part.places(name)) == 1]
            # Where the name's step is quadratic, what is linear in it tells where that begins.
            for parts in [once] if len(once) == len(known) else [once, known]:
                touched = {k: [part for part in parts if part.places(k)] for k in told}
                current = self._stepped(touched, name, current, 0.0)
        return current

    def wandered(
        self, current: Indices, generator: np.random.Generator, sweeps: int = 100
    ) -> Indices:
        """The best element on a walk of steps as Git Re-Basin takes them, climbing or not.

        A quadratic name's step there is that of its linear part alone. So a walk may fall, never
        needs to end, and passes where ascent would stay; here it ends after three sweeps in vain.
        """
        best, highest, vain = current, self.value(current), 0
        names = [name for name in self._group.sizes if name not in self._group.owners]
        for _ in range(sweeps):
            for name in generator.permutation(names).tolist():
                if self.quadratic(name):
                    current = current | {name: self._linearized(name, current)}
                else:
                    current = self.stepped(name, current, 0.0)
            value = self.value(current)
            vain += 1
            if value > highest + 1e-4 * abs(highest):
                best, highest, vain = current, value, 0
            if vain == 3:
                break
        return best

    def stepped(self, name: str, current: Indices, threshold: float) -> Indices:
        """With a name's units moved, and those inside them, where that climbs; else the same."""
        return self._stepped(self._touched, name, current, threshold)

    def _stepped(self, touched, name, current, threshold) -> Indices:
        if not touched[name]:
            return current
        for step in self._steps(name):
            changed, gain = step(touched, current, name)
            if gain > threshold:
                current = current | changed
        return current

    def _steps(self, name: str) -> list[Callable[..., Step]]:
        inside = owned(self._group, name)
        if not inside:
            return [self._step]

        def wholes(touched, current, name):
            return _step_nested(touched, current, name, inside)

        def units(k):
            return lambda touched, current, name: _step_inside(touched[k], current, k, name)

        return [wholes, *map(units, inside)]

    def _step(self, touched, current: Indices, name: str) -> Step:
        others = {k: v for k, v in current.items() if k != name}
        old = current[name]
        linear = 0.0
        pairs = []
        for part in touched[name]:
            count = len(part.places(name))
            if count == 1:
                linear = linear + self._product(part, name, others)
            elif count == 2:
                pairs.append(part.fronted([name], others))
            else:
                raise PermutationError(
                    f"{name!r} stands on {count} axes of one tensor, and matching knows two at "
                    "most. Fix one of them with a leading `_`, or start from activations."
                )
        if not pairs:
            new = project_hard(linear)
            return {name: new}, _picked(linear, new) - _picked(linear, old)
        if not isinstance(linear, torch.Tensor):
            linear = torch.zeros(len(old), len(old)).to(pairs[0][0])
        changed = {name: assign_quadratic(linear, pairs, old)}
        return changed, _total(touched[name], current | changed) - _total(touched[name], current)

    def _linearized(self, name: str, current: Indices) -> torch.Tensor:
        others = {k: v for k, v in current.items() if k != name}
        return project_hard(
            sum(
                self._product(part, name, others)
                if len(part.places(name)) == 1
                else quadratic_gradient([part.fronted([name], others)], current[name])
                for part in self._touched[name]
            )
        )

    def _product(self, part: Part, name: str, held: Indices) -> torch.Tensor:
        """R W^T, a name's units in rows and columns, everything else as it is held."""
        others = [other for other in part.names() if other != name]
        if sum(len(part.places(other)) for other in others) > 1 or (
            others and others[0] in self._group.owners
        ):
            R, W = part.fronted([name], held)
            return R @ W.T
        key = (name, id(part))
        now = held[others[0]] if others else torch.empty(0, dtype=torch.long)
        if key in self._products:
            before, product = self._products[key]
            moved = (now != before).nonzero().squeeze(1)
            if len(moved) <= len(now) // 2:
                if len(moved):
                    R, W = part.fronted([name, *others], {})
                    change = W[:, now[moved]] - W[:, before[moved]]
                    product = product + R[:, moved].flatten(1) @ change.flatten(1).T
                    self._products[key] = now, product
                return product
        R, W = part.fronted([name], held)
        self._products[key] = now, R @ W.T
        return self._products[key][1]


def owned(group: PermutationGroup, name: str) -> list[str]:
    """The names whose owner a name is."""
    return [inner for inner, owner in group.owners.items() if owner == name]


def unfolded(symmetry: Symmetry, reference: State, model: State) -> list[Part]:
    """Two models' tensors side by side."""
    return [
        Part(factors, _at_least_single(R), _at_least_single(W))
        for (factors, R), (_, W) in zip(
            symmetry.unfold(reference), symmetry.unfold(model), strict=True
        )
    ]


def _at_least_single(tensor: torch.Tensor) -> torch.Tensor:
    # Sums in half precision would drift.
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _step_nested(
    touched: Mapping[str, Sequence[Part]], current: Indices, name: str, inside: Sequence[str]
) -> Step:
    """Reorders wholes together with the units inside them."""
    size = len(current[name])
    outer = torch.zeros(size, size, dtype=torch.float64)
    inner: Indices = {}
    for part in touched[name]:
        here = [k for k in inside if part.places(k)]
        others = {k: v for k, v in current.items() if k != name and k not in here}
        if len(here) == len(part.places(here[0]) if here else []) == len(part.places(name)) == 1:
            (k,) = here
            R, W = part.fronted([name, k], others)
            scores = torch.tensordot(R, W, ([2], [2])).permute(0, 2, 1, 3).double()
            inner[k] = inner[k] + scores if k in inner else scores
        elif len(part.places(name)) == 1:
            # No units inside, or several kinds in one tensor: these stay as they are at each place.
            R, W = part.fronted([name], others)
            for place in range(size):
                if here:
                    as_here = {k: current[k][place].expand(size, -1) for k in here}
                    _, W = part.fronted([name], others | as_here)
                outer[place] += (R[place] @ W.T).double().cpu()
    order, units = assign_nested(outer, inner)
    changed = {name: order} | units
    parts = touched[name]
    return changed, _total(parts, current | changed) - _total(parts, current)


def _step_inside(parts: Sequence[Part], current: Indices, name: str, owner: str) -> Step:
    """Reorders the units inside each whole, where it stands."""
    others = {k: v for k, v in current.items() if k != name}
    scores = 0.0
    for part in parts:
        if len(part.places(name)) == len(part.places(owner)) == 1:
            R, W = part.fronted([owner, name], others)
            scores = scores + torch.bmm(R, W.transpose(1, 2))
    if not isinstance(scores, torch.Tensor):
        return {}, 0.0
    changed = {name: project_hard(scores)}
    return changed, _total(parts, current | changed) - _total(parts, current)


def _total(parts: Sequence[Part], held: Indices) -> float:
    return sum(part.value(held) for part in parts)


def _picked(scores: torch.Tensor, index: torch.Tensor) -> float:
    return float(scores.gather(1, index.to(scores.device).unsqueeze(1)).double().sum())
