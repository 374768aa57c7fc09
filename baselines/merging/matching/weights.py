"""Matching of one model with another by their weights.

Coordinate ascent on <reference, P(model)>, which solves the least-squares problem one
name at a time (Ainsworth et al. 2023; see `coordinate_ascent`), after an initial guess from inputs
to outputs. Only steps that increase the objective are taken, so it ends. If a name is quadratic, a
second ascent starts from a random walk of Git Re-Basin's own steps, and the better result counts.
"""

import numpy as np
import torch

from fleet_tools.baselines.merging.matching.assignment import Indices, unfold_models
from fleet_tools.baselines.merging.matching.coordinate_ascent import CoordinateAscent
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
