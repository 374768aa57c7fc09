"""Activations: how they are recorded and permuted, and matching of one model with another by them.

By activations on common inputs, or by their second moments, which data holders measure.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import torch

from fleet_merging.errors import MergeError, PermutationError
from fleet_merging.matching.assignment import Indices, assign_nested
from fleet_merging.matching.weights import match_weights
from fleet_merging.moments.affine_maps import AffineMap, ParameterBlock
from fleet_merging.symmetry.axes import Axis, Factor
from fleet_merging.symmetry.group import Permutation, PermutationGroup
from fleet_merging.symmetry.table import State, Symmetry

_Hook = Callable[[torch.nn.Module, Any, Any], None]


@torch.no_grad()
def record(
    model: torch.nn.Module,
    state: State,
    inputs: Any,
    modules: Mapping[str, str],
    dims: Mapping[str, int] | None = None,
) -> dict[str, torch.Tensor]:
    """Records the outputs of modules of a model; the model itself is not changed.

    Args:
        model: Any module; it runs in evaluation mode.
        state: Weights of the model.
        inputs: The model's argument, or a tuple of its arguments.
        modules: By free name, the module whose outputs have those units; the output of a recurrent
            module is the sequence of its last layer.
        dims: By free name, the dimension of the units in the output, if it is not the last one: 1
            for the channels of a convolution.

    Returns:
        The activations by free name, shape (samples, n); all other dimensions count as samples.

    Raises:
        MergeError: The model has no such module.
    """
    known = dict(model.named_modules())
    for name, module in modules.items():
        if module not in known:
            raise MergeError(
                f"The model has no module {module!r} from which to record {name!r}. It has "
                f"{', '.join(filter(None, known)) or 'none'}."
            )
    outputs: dict[str, torch.Tensor] = {}

    def store_as(name: str) -> _Hook:
        def hook(module: torch.nn.Module, arguments: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            units = value.detach().movedim((dims or {}).get(name, -1), -1)
            outputs[name] = units.reshape(-1, units.shape[-1]).clone()

        return hook

    was_training = model.training
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    handles = []
    try:
        model.eval()
        handles += [
            known[module].register_forward_hook(store_as(name)) for name, module in modules.items()
        ]
        copies = {name: tensor.clone() for name, tensor in state.items()}
        # Tied weights have an entry under each of their names, which need not be one tensor.
        torch.func.functional_call(model, copies, arguments, tie_weights=False)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return outputs


def permute_activations(
    group: PermutationGroup, activations: Mapping[str, torch.Tensor], permutation: Permutation
) -> dict[str, torch.Tensor]:
    """Returns the activations that a model has after its units are reordered.

    Args:
        group: Permutations of the model.
        activations: By free name, shape (samples, n), or (samples, m, n) if it has an owner.
        permutation: A hard element.
    """
    permuted = {}
    for name, values in activations.items():
        index = torch.as_tensor(permutation[name], device=values.device)
        owner = group.owners.get(name)
        if owner is None:
            permuted[name] = values[:, index]
        else:
            groups = values[:, torch.as_tensor(permutation[owner], device=values.device)]
            permuted[name] = groups.gather(2, index.expand(len(groups), *index.shape))
    return permuted


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
            k: torch.einsum("sia,sjb->ijab", reference[k], model[k]) for k in group.owned(name)
        }
        size = group.sizes[name][-1]
        outer = reference[name].T @ model[name] if name in reference else torch.zeros(size, size)
        order, units = assign_nested(outer, inner)
        found |= {name: order} | units
    return {name: index.numpy() for name, index in found.items()}


def match_moments(
    symmetry: Symmetry,
    reference: State,
    model: State,
    maps: Sequence[AffineMap],
    products: Mapping[str, torch.Tensor],
    generator: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Returns the hard element under which a model's activations resemble a reference's most.

    It maximizes the sum of the covariances of each unit with the reference's, both as affine maps
    write it, before the activation, and as they read it. This is the assignment of Git Re-Basin's
    activation matching, solved as for weights: to a permutation P, a covariance C of
    reference and model is what the weights of a layer are, <I, P C^T>.

    Args:
        symmetry: Table of both models.
        reference: A model.
        model: The model to permute.
        maps: Their affine maps.
        products: For each map, the mean of x y^T, where x and y are the reference's and the
            model's inputs to it on the same data. Both have a last entry of 1; (1, in + 1, in + 1).
        generator: Draws the order of names in each sweep.

    Raises:
        ModelMismatchError, SymmetryError: The models differ in form, or do not fit the table.
    """
    axes = symmetry.sized_axes(model)
    group = symmetry.group(model)
    virtual: dict[str, tuple[Axis, ...]] = {}
    covariances: dict[str, torch.Tensor] = {}
    ungrouped = [each for each in maps if each.groups == 1]

    def add(key: str, axis: Axis, covariance: torch.Tensor) -> None:
        virtual[key] = (axis, ((Factor("_units", len(covariance)),),))
        covariances[key] = covariance.T.contiguous()

    for each in ungrouped:
        add(f"{each.name}.inputs", _input_axis(each, axes), _centered(products[each.name][0]))
    for each in ungrouped:
        one, other = each.matrix(reference)[0], each.matrix(model)[0]
        covariance = one[:-1].T @ _centered(products[each.name][0]) @ other[:-1]
        add(f"{each.name}.outputs", _output_axis(each.weights[0], axes), covariance)
    table = Symmetry(virtual)
    identities = {key: torch.eye(len(C), dtype=C.dtype) for key, C in covariances.items()}
    return group.identity() | match_weights(table, identities, covariances, generator)


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


def _input_axis(each: AffineMap, axes: Mapping[str, tuple[Axis, ...]]) -> Axis:
    products = []
    for weight in each.weights:
        _, inputs, *kernel = axes[weight.parameter]
        rest = tuple(factor for (product,) in kernel for factor in product)
        products += [(*product, *rest) for product in inputs]
    return tuple(products)


def _output_axis(weight: ParameterBlock, axes: Mapping[str, tuple[Axis, ...]]) -> Axis:
    """Returns the parts of a parameter's first axis to which a block of its rows belongs."""
    axis = axes[weight.parameter][0]
    sizes = [prod(factor.size or 1 for factor in product) for product in axis]
    ends = list(accumulate(sizes))
    stop = ends[-1] if weight.stop is None else weight.stop
    pairs = zip(axis, sizes, ends, strict=True)
    return tuple(
        product for product, size, end in pairs if weight.start <= end - size < end <= stop
    )


def _centered(products: torch.Tensor) -> torch.Tensor:
    return products[:-1, :-1] - products[:-1, -1:] @ products[-1:, :-1]
