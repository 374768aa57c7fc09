"""Which permutation brings one model closest to another: by weights, or by activations.

Weights: coordinate ascent on <reference, P(model)>, which is least squares, one name at a time
(Ainsworth et al. 2023; see `ascent`), after a first pass from inputs to outputs. No step is taken
that does not climb, so it ends. Where names are quadratic a second ascent begins on a walk of Git
Re-Basin's own steps, and the higher end counts.
"""

from collections.abc import Mapping

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import PermutationError
from fleet_tools.baselines.merging.matching.assignment import assign_nested
from fleet_tools.baselines.merging.matching.coordinate_ascent import (
    Ascent,
    Indices,
    owned,
    unfolded,
)
from fleet_tools.baselines.merging.symmetry.group import Permutation, PermutationGroup
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry, require_alike


@torch.no_grad()
def match_weights(
    symmetry: Symmetry,
    reference: State,
    model: State,
    generator: np.random.Generator,
    start: Permutation | None = None,
    sweeps: int = 100,
    tolerance: float = 0.05,
) -> dict[str, np.ndarray]:
    """The hard element P under which P(model) lies closest to a reference, as far as ascent goes.

    Args:
        symmetry: The table of both.
        reference: A model, which stays.
        model: The model to permute.
        generator: Draws the order of names in each sweep.
        start: Where to begin, unless a first pass from inputs to outputs finds a closer one; the
            identity if not given.
        sweeps: At most so many; it ends sooner, when no name's step climbs.
        tolerance: What counts as climbing: this share of what one unit contributes where models
            are alike.

    Raises:
        ModelMismatchError, SymmetryError: The models differ, or do not fit the table.
    """
    require_alike([reference, model])
    group = symmetry.group(model)
    ascent = Ascent(group, unfolded(symmetry, reference, model))
    begin = group.tensors(group.identity() if start is None else start)
    sketch = ascent.sketched()
    current = sketch if ascent.value(sketch) > ascent.value(begin) else begin
    current = _climbed(ascent, group, current, generator, sweeps, tolerance)
    if any(map(ascent.quadratic, group.sizes)):
        walk = ascent.wandered(begin, generator)
        other = _climbed(ascent, group, walk, generator, sweeps, tolerance)
        value = ascent.value(current)
        # Within a thousandth they tie; barriers were lower where inputs had told the way.
        if ascent.value(other) > value + 1e-3 * abs(value):
            current = other
    return {name: index.numpy() for name, index in current.items()}


def _climbed(
    ascent: Ascent, group: PermutationGroup, current: Indices, generator, sweeps, tolerance
) -> Indices:
    """Steps of all names, in a new order in each sweep, until none climbs."""
    least = {name: tolerance * ascent.worth(name) for name in group.sizes}
    names = [name for name in group.sizes if name not in group.owners]
    stale = set(names)
    for _ in range(sweeps):
        for name in generator.permutation(names).tolist():
            if name not in stale:
                continue
            before = current
            current = ascent.stepped(name, current, least[name])
            stale.discard(name)
            if current is not before:
                stale |= ascent.neighbours(name)
        if not stale:
            break
    return current


def match_activations(
    group: PermutationGroup,
    reference: Mapping[str, torch.Tensor],
    model: Mapping[str, torch.Tensor],
) -> dict[str, np.ndarray]:
    """The hard element under which one model's units answer most as another's do.

    Least squares of activations to the same inputs, each name's alone (Ainsworth et al. 2023).

    Args:
        group: Of both models.
        reference: For every free name its units' activations, shape (samples, n), or
            (samples, m, n) where it has an owner. An owner needs none of its own.
        model: Of the model to permute, to the same inputs.

    Raises:
        PermutationError: Activations are missing, or of another shape.
    """
    _require_activations(group, reference, model)
    found: Indices = {}
    for name in (name for name in group.sizes if name not in group.owners):
        inner = {
            k: torch.einsum("sia,sjb->ijab", reference[k], model[k]) for k in owned(group, name)
        }
        size = group.sizes[name][-1]
        outer = reference[name].T @ model[name] if name in reference else torch.zeros(size, size)
        order, units = assign_nested(outer, inner)
        found |= {name: order} | units
    return {name: index.numpy() for name, index in found.items()}


def _require_activations(group: PermutationGroup, *sets: Mapping[str, torch.Tensor]) -> None:
    for activations in sets:
        for name, shape in group.sizes.items():
            if name in group.owners.values() and name not in activations:
                continue
            if name not in activations or tuple(activations[name].shape[1:]) != tuple(shape):
                got = (
                    f"have the shape {tuple(activations[name].shape)}"
                    if name in activations
                    else "are missing"
                )
                raise PermutationError(
                    f"The activations of {name!r} {got}. Matching needs them as (samples, "
                    f"{', '.join(map(str, shape))}), to the same inputs for every model."
                )
