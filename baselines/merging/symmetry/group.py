"""The group of hard permutations, and the doubly stochastic matrices about them.

An element says, for every free name, how its units are reordered:

- hard: an index array p of integers, shape (n,); unit i of the result is unit p[i] of the argument.
  As a matrix, P[i, p[i]] = 1, so the result is P x, as in the paper's eq. (perm_action).
- soft: a matrix P of floats, shape (n, n); row i weighs the argument's units for the result's i.

A name with an owner has one of these for each unit of its owner, shapes (m, n) and (m, n, n): entry
i reorders the units inside what *arrives* at place i. With its owner it forms a wreath product.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import PermutationError

Permutation = Mapping[str, np.ndarray | torch.Tensor]
"""An element: every free name's index array, or matrix."""


@dataclass(frozen=True)
class PermutationGroup:
    """The free permutations of models of one shape.

    Args:
        sizes: Every free name's shape as an index array: (n,), or (m, n) where it has an owner.
        owners: The owner of each name that has one.
    """

    sizes: Mapping[str, tuple[int, ...]]
    owners: Mapping[str, str]

    def identity(self) -> dict[str, np.ndarray]:
        """The element that changes nothing."""
        return {
            name: np.broadcast_to(np.arange(shape[-1]), shape).copy()
            for name, shape in self.sizes.items()
        }

    def random(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """A uniformly random hard element."""
        ordered = self.identity()
        return {name: generator.permuted(index, axis=-1) for name, index in ordered.items()}

    def compose(self, second: Permutation, first: Permutation) -> dict[str, np.ndarray]:
        """The hard element that acts as `first`, and then as `second`.

        Raises:
            PermutationError: One does not belong to the group, or is soft.
        """
        after, before = self._hard(second, "composed"), self._hard(first, "composed")
        composed = {}
        for name, index in after.items():
            argument = before[name]
            if name in self.owners:
                argument = argument[after[self.owners[name]]]
            composed[name] = np.take_along_axis(argument, index, axis=-1)
        return composed

    def invert(self, permutation: Permutation) -> dict[str, np.ndarray]:
        """The hard element that undoes one.

        Raises:
            PermutationError: It does not belong to the group, or is soft.
        """
        undone = {
            name: np.argsort(index, axis=-1)
            for name, index in self._hard(permutation, "inverted").items()
        }
        for name, owner in self.owners.items():
            undone[name] = undone[name][undone[owner]]
        return undone

    def moved(self, permutations: Sequence[Permutation]) -> float | None:
        """Returns the share of units that elements put elsewhere than the first of them does.

        Over all others, all names and all units: 0 where all are the same element, so that models
        are averaged as they stand. None if one is soft, and 0 for a single element.

        Raises:
            PermutationError: One does not belong to the group.
        """
        tensors = [self.tensors(permutation) for permutation in permutations]
        if any(each.is_floating_point() for named in tensors for each in named.values()):
            return None
        undone = self.invert(permutations[0])
        elsewhere = [
            (index != np.arange(index.shape[-1])).ravel()
            for other in permutations[1:]
            for index in self.compose(undone, other).values()
        ]
        return float(np.concatenate(elsewhere).mean()) if elsewhere else 0.0

    def matrices(self, permutation: Permutation) -> dict[str, torch.Tensor]:
        """The same element as matrices (float64 where it was hard), shapes (n, n) or (m, n, n)."""
        return {
            name: value if value.is_floating_point() else _one_hot(value)
            for name, value in self.tensors(permutation).items()
        }

    def tensors(self, permutation: Permutation) -> dict[str, torch.Tensor]:
        """The element as tensors, once it is known to belong here: int64 indices, float matrices.

        Gradients flow through. That matrices are doubly stochastic is not asked: an optimizer's
        iterates need not be (Algorithm 1 projects them after each step).

        Raises:
            PermutationError: A name is missing or unknown, a shape differs, or indices repeat.
        """
        missing, unknown = set(self.sizes) - set(permutation), set(permutation) - set(self.sizes)
        if missing or unknown:
            raise PermutationError(
                f"A permutation names {_listing(permutation)}: {_listing(missing)} missing, "
                f"{_listing(unknown)} unknown. Give one index array or matrix for each of "
                f"{_listing(self.sizes)}; `identity()` has them all."
            )
        return {name: self._tensor(name, permutation[name]) for name in self.sizes}

    def _tensor(self, name: str, value: np.ndarray | torch.Tensor) -> torch.Tensor:
        shape = tuple(self.sizes[name])
        if not isinstance(value, torch.Tensor):
            try:  # a copy, since torch takes neither read-only nor backward views
                value = torch.from_numpy(np.array(value))
            except (TypeError, ValueError) as error:
                raise PermutationError(
                    f"The permutation {name!r} cannot be read ({error}). Give an array of integers "
                    f"of the shape {shape}, or of floats of the shape {(*shape, shape[-1])}."
                ) from None
        soft = value.is_floating_point()
        wanted = (*shape, shape[-1]) if soft else shape
        if tuple(value.shape) != wanted or value.is_complex() or value.dtype == torch.bool:
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

    def _hard(self, permutation: Permutation, participle: str) -> dict[str, np.ndarray]:
        tensors = self.tensors(permutation)
        soft = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
        if soft:
            raise PermutationError(
                f"{_listing(soft)} hold matrices, and only hard permutations are {participle}: "
                "soft ones are no group. Project them first, or multiply the matrices yourself."
            )
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def _one_hot(index: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(index, index.shape[-1]).double()


def _listing(names) -> str:
    return ", ".join(sorted(map(repr, names))) or "none"
