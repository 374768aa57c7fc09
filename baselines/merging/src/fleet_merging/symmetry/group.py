"""The group of hard permutations, and soft ones: doubly stochastic matrices.

An element has for every free name a reordering of its units:

- hard: an index array p of integers, shape (n,); unit i of the result is unit p[i] of the argument.
  As a matrix, P[i, p[i]] = 1, so the result is P x, as in the paper's eq. (perm_action).
- soft: a matrix P of floats, shape (n, n); row i holds the weights of the argument's units in the
  result's unit i.

A name with an owner has one of these for each unit of its owner, shapes (m, n) and (m, n, n). Entry
i reorders the units inside the owner's unit that the owner's permutation puts at position i. The
two form a wreath product.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import one_hot

from fleet_merging.errors import PermutationError

Permutation = Mapping[str, np.ndarray | torch.Tensor]
"""An element: the index array or matrix of every free name."""


@dataclass(frozen=True)
class PermutationGroup:
    """The free permutations of models of one shape.

    Attributes:
        sizes: Shape of every free name's index array: (n,), or (m, n) if it has an owner.
        owners: The owner of each name that has one.
    """

    sizes: Mapping[str, tuple[int, ...]]
    owners: Mapping[str, str]

    def owned(self, name: str) -> list[str]:
        """Returns the names that a name owns."""
        return [inner for inner, owner in self.owners.items() if owner == name]

    def identity(self) -> dict[str, np.ndarray]:
        """Returns the element that changes nothing."""
        return {
            name: np.broadcast_to(np.arange(shape[-1]), shape).copy()
            for name, shape in self.sizes.items()
        }

    def random(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draws a hard element uniformly."""
        ordered = self.identity()
        return {name: generator.permuted(index, axis=-1) for name, index in ordered.items()}

    def moved_fraction(self, permutations: Sequence[Permutation]) -> float | None:
        """Returns the fraction of units that elements move to other positions than the first does.

        It is taken over all other elements, names and units. It is 0 if all elements are equal, so
        that the models keep their relative order, and for a single element. It is None if an
        element is soft or there are none.
        """
        tensors = [self.tensors(permutation) for permutation in permutations]
        if not tensors or any(x.is_floating_point() for each in tensors for x in each.values()):
            return None
        first, *others = tensors
        # One moves a unit elsewhere than the other exactly where their entries differ.
        moved = [(each[name] != index).ravel() for each in others for name, index in first.items()]
        return float(torch.cat(moved).double().mean()) if moved else 0.0

    def matrices(self, permutation: Permutation) -> dict[str, torch.Tensor]:
        """Returns an element as matrices (float64 if it is hard), shapes (n, n) or (m, n, n)."""
        return {
            name: value if value.is_floating_point() else one_hot(value, value.shape[-1]).double()
            for name, value in self.tensors(permutation).items()
        }

    def tensors(self, permutation: Permutation) -> dict[str, torch.Tensor]:
        """Checks an element, and returns it as tensors: int64 indices, or float matrices.

        Gradients flow through. Matrices need not be doubly stochastic, since an optimizer's
        iterates are not (Algorithm 1 projects them after each step).

        Raises a `PermutationError` if a name is missing or unknown, a shape differs, or indices
        repeat.
        """
        missing, unknown = set(self.sizes) - set(permutation), set(permutation) - set(self.sizes)
        if missing or unknown:
            raise PermutationError(
                f"A permutation has the names {_listing(permutation)}: {_listing(missing)} "
                f"missing, {_listing(unknown)} unknown. Give one index array or matrix for each of "
                f"{_listing(self.sizes)}; `identity()` has them all."
            )
        return {name: self._tensor(name, permutation[name]) for name in self.sizes}

    def _tensor(self, name: str, value: np.ndarray | torch.Tensor) -> torch.Tensor:
        shape = tuple(self.sizes[name])
        if not isinstance(value, torch.Tensor):
            try:  # a copy, since torch accepts neither read-only nor reversed views
                value = torch.from_numpy(np.array(value))
            except (TypeError, ValueError) as error:
                raise PermutationError(
                    f"The permutation {name!r} cannot be read ({error}). Give an array of integers "
                    f"of the shape {shape}, or of floats of the shape {(*shape, shape[-1])}."
                ) from None
        soft = value.is_floating_point()
        expected = (*shape, shape[-1]) if soft else shape
        if tuple(value.shape) != expected or value.is_complex() or value.dtype == torch.bool:
            raise PermutationError(
                f"The permutation {name!r} has the shape {tuple(value.shape)} and the dtype "
                f"{value.dtype}; it must be integers of the shape {shape} (hard), or floats of "
                f"the shape {(*shape, shape[-1])} (soft)."
            )
        if soft:
            return value
        index = value.long()
        ordered = torch.arange(shape[-1], device=index.device).expand(shape)
        if not torch.equal(index.sort(dim=-1).values, ordered):
            raise PermutationError(
                f"The permutation {name!r} begins with {index.flatten()[:8].tolist()}; each of its "
                f"rows must hold each of 0 to {shape[-1] - 1} exactly once."
            )
        return index


def _listing(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(repr, names))) or "none"
