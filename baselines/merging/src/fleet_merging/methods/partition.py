"""Partition: narrow networks side by side, as blocks of one wide network."""

from collections.abc import Container, Sequence
from dataclasses import replace
from math import prod

import torch

from fleet_merging.ensembles import Ensemble
from fleet_merging.errors import MergeError
from fleet_merging.methods.ensembles import concatenation
from fleet_merging.methods.facts import ENSEMBLE, MOMENTS, method
from fleet_merging.modules import form_of, tensors_of, uncompiled
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.axes import Axis
from fleet_merging.symmetry.table import State, Symmetry


@method(
    "partition",
    "Narrow networks as blocks of a wide one",
    source="this project",
    needs=MOMENTS,
    returns=ENSEMBLE,
    asks="moments with labels, of all networks",
)
def partition(problem: MergeProblem) -> MergeResult:
    """Puts narrow models side by side in one network, with one last layer fitted by moments.

    Inputs are shared. Each model is a block on the diagonal of every hidden matrix, and the last
    layer is fitted as in `concatenation`. So the result computes the outputs of that ensemble, by a
    network of the models' kind as wide as all of them together. No alignment is needed.

    Args:
        problem: The models, their data holders with labels, affine maps, and a `resized`
            architecture as wide as all models together. Without one, the ensemble itself is the
            result.

    Raises:
        MergeError: See `concatenation`. Or the wide architecture has other sizes, or computes
            something else than the blocks (a LayerNorm mixes the units of all).
        MessageError: A data holder's answer is invalid.
    """
    beside = concatenation(problem)
    if problem.resized is None:
        return beside
    last, count = problem.affine_maps[-1], len(problem.models)
    members = [last.with_matrix(each, last.matrix(each) / count) for each in beside.members]
    biases = {block.parameter for block in last.biases}
    form = tensors_of(problem.resized)
    state = block_diagonal(problem.symmetry, members, biases)
    if differing := [
        f"{name} is {_form(form, name)} and has to be {_form(state, name)}"
        for name in sorted({*form, *state})
        if _form(form, name) != _form(state, name)
    ]:
        raise MergeError(
            f"The wide network does not hold the models side by side: {'; '.join(differing[:6])}. "
            "Build it of their kind, with the sums of their widths and the same inputs and outputs."
        )
    state = {name: state[name] for name in form}
    _require_equal(problem, beside, state)
    return replace(MergeResult.network(state, traffic=beside.traffic), module=problem.resized)


def block_diagonal(
    symmetry: Symmetry, states: Sequence[State], added: Container[str] = ()
) -> dict[str, torch.Tensor]:
    """Returns the state dict of networks side by side: free axes are concatenated.

    Each tensor has the models' blocks on its diagonal, along its free axes, and zeros elsewhere. A
    permutation within the units of another axis belongs to these units and is not widened. Tensors
    named in `added`, such as the last layer's bias, have no free axes and are summed.

    Raises a `MergeError` if another tensor without free axes differs between models.
    """
    sized = [symmetry.sized_axes(state) for state in states]
    return {
        name: _placed(
            name, [state[name] for state in states], [axes[name] for axes in sized], added
        )
        for name in symmetry.axes
    }


def _placed(
    name: str,
    tensors: Sequence[torch.Tensor],
    axes: Sequence[tuple[Axis, ...]],
    added: Container[str],
) -> torch.Tensor:
    for dim, axis in enumerate(axes[0]):
        if len(axis) > 1:  # a sum: each of its products by itself
            parts = []
            lengths = [[prod(f.size or 1 for f in part) for part in each[dim]] for each in axes]
            split = [tensor.split(own, dim) for tensor, own in zip(tensors, lengths, strict=True)]
            for index in range(len(axis)):
                own_axes = [(*each[:dim], (each[dim][index],), *each[dim + 1 :]) for each in axes]
                parts.append(_placed(name, [each[index] for each in split], own_axes, added))
            return torch.cat(parts, dim)
    factors = [[factor for (product,) in each for factor in product] for each in axes]
    wide = [not factor.fixed and factor.owner is None for factor in factors[0]]
    if not any(wide):
        return _shared(name, tensors, added)
    sizes = [[factor.size or 1 for factor in each] for each in factors]
    shape = [
        sum(each[dim] for each in sizes) if free else sizes[0][dim] for dim, free in enumerate(wide)
    ]
    total, start = tensors[0].new_zeros(shape), [0] * len(shape)
    for tensor, own in zip(tensors, sizes, strict=True):
        total[tuple(slice(a, a + n) for a, n in zip(start, own, strict=True))] = tensor.reshape(own)
        start = [a + n * free for a, n, free in zip(start, own, wide, strict=True)]
    lengths, position = [], 0
    for (product,) in axes[0]:
        lengths.append(torch.Size(shape[position : position + len(product)]).numel())
        position += len(product)
    return total.reshape(lengths)


def _shared(name: str, tensors: Sequence[torch.Tensor], added: Container[str]) -> torch.Tensor:
    first = tensors[0]
    if name in added:
        return torch.stack([each.double() for each in tensors]).sum(0).to(first)
    counts = not first.is_floating_point() and first.dim() == 0
    if not counts and not all(torch.equal(first, each) for each in tensors):
        raise MergeError(
            f"{name} has no axis of hidden units to concatenate, and differs between models. Leave "
            "out the wide model: partition then returns an ensemble."
        )
    return first.clone()


def _require_equal(problem: MergeProblem, beside: MergeResult, state: State) -> None:
    """Raises an error unless the wide network computes the ensemble's outputs."""
    if problem.module is None or problem.resized is None or problem.example is None:
        return
    ensemble = Ensemble(problem.module, beside.members, None, problem.output)
    with torch.no_grad(), uncompiled():
        expected = ensemble(*problem.example)
    found = problem.outputs(problem.resized, state)
    if not torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
        raise MergeError(
            "The wide network does not compute the same as the models side by side, because a "
            "layer mixes the units of all models, such as a LayerNorm or an attention. Leave out "
            "the wide model: partition then returns an ensemble."
        )


def _form(state: State, name: str) -> str:
    return form_of(state[name]) if name in state else "missing"
