"""Matching of one model with another by second moments of activations from data holders."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import numpy as np
import torch

from fleet_merging.matching.weights import match_weights
from fleet_merging.moments.affine_maps import AffineMap, ParameterBlock
from fleet_merging.symmetry.axes import Axis, Factor
from fleet_merging.symmetry.table import State, Symmetry


def match_moments(
    symmetry: Symmetry,
    reference: State,
    model: State,
    maps: Sequence[AffineMap],
    products: Mapping[str, torch.Tensor],
    generator: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Returns the hard element that makes a model's activations resemble a reference's most.

    It maximizes the sum of the covariances of each unit with the reference's. These are of the
    outputs of affine maps, before the activation, and of their inputs. This is the assignment of
    Git Re-Basin's activation matching. It is solved as for weights, with a covariance C of
    reference and model in place of a layer's weights, <I, P C^T>.

    `products` has for each map the mean of x y^T, with the reference's inputs x and the model's
    inputs y on the same data. Both have a last entry of 1; (1, in + 1, in + 1).
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
