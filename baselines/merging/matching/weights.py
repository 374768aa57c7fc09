"""Matching of one model with another: by weights, or by activations.

By weights: coordinate ascent on <reference, P(model)>, which solves the least-squares problem one
name at a time (Ainsworth et al. 2023; see `coordinate_ascent`), after an initial guess from inputs
to outputs. Only steps that increase the objective are taken, so it ends. If a name is quadratic, a
second ascent starts from a random walk of Git Re-Basin's own steps, and the better result counts.
"""

from collections.abc import Mapping

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import PermutationError
from fleet_tools.baselines.merging.matching.assignment import assign_nested
from fleet_tools.baselines.merging.matching.coordinate_ascent import CoordinateAscent, owned
from fleet_tools.baselines.merging.matching.unfolded import Indices, unfold_models
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
    """Returns a hard element P under which P(model) is close to a reference, a local optimum.

    Args:
        symmetry: Table of both models.
        reference: A model.
        model: The model to permute.
        generator: Draws the order of names in each sweep.
        start: Start of the ascent, unless the initial guess is closer; the identity if None.
        sweeps: Maximum number of sweeps; it ends sooner when no step increases the objective.
        tolerance: Smallest increase that counts, as a fraction of the mean contribution of a unit
            if the models are alike.

    Raises:
        ModelMismatchError, SymmetryError: The models differ in form, or do not fit the table.
    """
    require_alike([reference, model])
    group = symmetry.group(model)
    ascent = CoordinateAscent(group, unfold_models(symmetry, reference, model))
    begin = group.tensors(group.identity() if start is None else start)
    guess = ascent.initial_guess()
    current = guess if ascent.objective(guess) > ascent.objective(begin) else begin
    current = _ascend(ascent, group, current, generator, sweeps, tolerance)
    if any(map(ascent.is_quadratic, group.sizes)):
        walk = ascent.random_walk(begin, generator)
        other = _ascend(ascent, group, walk, generator, sweeps, tolerance)
        value = ascent.objective(current)
        # Up to a thousandth counts as equal: barriers were lower after the guess from the inputs.
        if ascent.objective(other) > value + 1e-3 * abs(value):
            current = other
    return {name: index.numpy() for name, index in current.items()}


def _ascend(
    ascent: CoordinateAscent,
    group: PermutationGroup,
    current: Indices,
    generator: np.random.Generator,
    sweeps: int,
    tolerance: float,
) -> Indices:
    """Takes the steps of all names, in a new order in each sweep, until none increases."""
    thresholds = {name: tolerance * ascent.value_per_unit(name) for name in group.sizes}
    names = [name for name in group.sizes if name not in group.owners]
    pending = set(names)
    for _ in range(sweeps):
        for name in generator.permutation(names).tolist():
            if name not in pending:
                continue
            before = current
            current = ascent.step(name, current, thresholds[name])
            pending.discard(name)
            if current is not before:
                pending |= ascent.neighbors(name)
        if not pending:
            break
    return current


def match_activations(
    group: PermutationGroup,
    reference: Mapping[str, torch.Tensor],
    model: Mapping[str, torch.Tensor],
) -> dict[str, np.ndarray]:
    """Returns the hard element under which a model's activations are closest to a reference's.

    Least squares over the same inputs, for each name separately (Ainsworth et al. 2023).

    Args:
        group: Permutations of both models.
        reference: For every free name its units' activations, shape (samples, n), or
            (samples, m, n) if it has an owner. An owner needs no activations of its own.
        model: Activations of the model to permute, on the same inputs.

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
                given = (
                    f"have the shape {tuple(activations[name].shape)}"
                    if name in activations
                    else "are missing"
                )
                raise PermutationError(
                    f"The activations of {name!r} {given}. Matching needs them in the shape "
                    f"(samples, {', '.join(map(str, shape))}), on the same inputs for every model."
                )
