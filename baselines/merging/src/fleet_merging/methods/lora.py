"""Adapters of low rank (LoRA), merged as products and not as factors.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021: an adapter changes a weight
W (outputs, inputs) to W + s B A, with A (r, inputs), B (outputs, r) and s = alpha / r. The factors
are not unique: B M and M^-1 A make the same change for any invertible M. So means of factors have
no meaning, while means of products do. A merge of products of n adapters has a rank of up to n r.
It is added to the weights (`with_changes`), or factored again by its largest singular values.

Adapters are state dicts in PEFT's format, see `adapters`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fleet_merging.adapters import (
    Config,
    Factors,
    factors_of,
    pairs_of,
    require_same_names,
    scale_of,
    unfactored,
)
from fleet_merging.average import AveragingWeights, normalize, weighted_sum
from fleet_merging.errors import MergeError
from fleet_merging.methods.facts import method
from fleet_merging.methods.spectra import combined
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.table import State

FACTORED = ("average", "ties", "tsv_m", "wudi")
"""Combinations of products that have largest singular values; isotropic ones have equal ones, so
none can be left out."""


@method(
    "lora",
    "Adapters of low rank",
    source="Hu et al. 2021; products",
    start="common",
    layers=(),
    permutes=False,
)
def lora(problem: MergeProblem, *, by: str = "average") -> MergeResult:
    """Merges the products of adapters of one rank, and factors the result to that rank.

    By Eckart and Young, the result is the adapter of that rank that is closest to the merged
    product. Entries that are no factors, such as trained biases, are averaged. All adapters need
    the same factor s; `adapters.alike` converts adapters of other ranks and factors.

    Args:
        problem: The adapters; their table has a fixed axis for the rank.
        by: Combination of products: "average", "ties", "tsv_m" or "wudi", each with the defaults of
            the method of that name; the base is a product of 0.

    Raises:
        MergeError: `by` is unknown. Or a factor has no partner, there are no factors, or they are
            DoRA's.
    """
    if by not in FACTORED:
        raise MergeError(
            f"Products are combined by {by!r}; known are {', '.join(FACTORED)}. Isotropic products "
            "have no adapter of low rank; use `merged_products`, which returns changes of weights."
        )
    pairs = factors_of(problem.models[0])
    if found := [each.magnitude for each in pairs if each.magnitude is not None]:
        raise MergeError(
            f"{found[0]} belongs to DoRA, and its changes do not have low rank. Use "
            "`lora.merged_products`, which merges changes of weights: give it `configs` and the "
            "model as `base`."
        )
    products = []
    for model in problem.models:
        of_model = {each.A: each.product(model) for each in pairs}
        of_model |= {each.bias: model[each.bias].double() for each in pairs if each.bias}
        products.append(of_model)
    merged = combined(products, problem.normalized_weights.tolist(), by)
    state = problem.mean()
    for each in pairs:
        A, B = state[each.A], state[each.B]
        state[each.A], state[each.B] = factors(merged[each.A], A, B)
        if each.bias is not None:
            state[each.bias] = merged[each.bias].to(state[each.bias])
    return MergeResult.network(state, tuple(problem.group.identity() for _ in problem.models))


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes of a model's weights by an adapter, or by several merged ones.

    Attributes:
        added: Tensors to add by the weight's name in the model, float64, of its shape.
        replaced: Tensors in place of the model's, such as trained biases and `modules_to_save`.
        linear: Names in `added` of layers' weights. PEFT's `fan_in_fan_out` is one value for all
            layers, and may be wrong for some.
    """

    added: Mapping[str, torch.Tensor]
    replaced: Mapping[str, torch.Tensor]
    linear: frozenset[str] = frozenset()


def merged_products(
    adapters: Sequence[State],
    averaging_weights: AveragingWeights | None = None,
    *,
    configs: Config | Sequence[Config],
    by: str = "average",
    base: State | None = None,
) -> Changes:
    """Returns the merged changes of weights by adapters, perhaps of different ranks.

    Args:
        adapters: State dicts of adapters of the same weights.
        averaging_weights: One for each adapter; equal ones if None.
        configs: The `adapter_config.json` of each, or one for all: ranks, scales and their
            patterns.
        by: See `lora`; or "iso_c".
        base: State dict of the adapted model, on which DoRA's changes depend.

    Raises:
        MergeError: See `lora`, `adapters.pairs_of` and `adapters.scale_of`. Or DoRA's adapters come
            without the base; or they are of a nn.MultiheadAttention.
    """
    several = [configs] * len(adapters) if isinstance(configs, Mapping) else list(configs)
    pairs = pairs_of(adapters, several)
    others = [unfactored(adapter) for adapter in adapters]
    require_same_names(others, "replace different weights")
    changes: list[dict[str, torch.Tensor]] = []
    turned: set[str] = set()
    for adapter, config, of_one in zip(adapters, several, pairs, strict=True):
        scales = {weight: scale_of(config, each, adapter) for weight, each in of_one.items()}
        change = {weight: scales[weight] * each.product(adapter) for weight, each in of_one.items()}
        turned = {
            weight
            for weight, each in of_one.items()
            if each.is_embedding or (config.get("fan_in_fan_out") and change[weight].dim() == 2)
        }
        if base is not None:
            turned ^= _turned_otherwise(base, change, turned, _linear(of_one))
        for weight, each in of_one.items():
            if ".base_layer." in each.A:
                raise MergeError(
                    f"{each.A} belongs to nn.MultiheadAttention; PEFT 0.21 adds its change to the "
                    "output twice. Merge such adapters into an adapter by `lora`."
                )
            if each.magnitude is not None:
                if base is None:
                    raise MergeError(
                        f"{each.magnitude} belongs to DoRA, and its change depends on the model's "
                        "weight. Give the model that was adapted as `base`."
                    )
                own = _weight_in(base, weight, change[weight], weight in turned).double()
                own = own.T if weight in turned else own
                change[weight] = _of_dora(own, change[weight], adapter[each.magnitude])
            elif config.get("use_dora"):
                raise MergeError(
                    f"{each.A} has no lora_magnitude_vector, which DoRA needs. Give the adapter's "
                    "whole state dict."
                )
            if each.bias is not None:
                bias = f"{weight.removesuffix('weight')}bias"
                change[bias] = scales[weight] * adapter[each.bias].double()
        changes.append(change)
    require_same_names(changes, "change different biases")
    weights = normalize(averaging_weights, len(adapters)).tolist()
    merged = combined(changes, weights, by)
    replaced = [
        {name: adapter[own] for name, own in of_one.items()}
        for adapter, of_one in zip(adapters, others, strict=True)
    ]
    return Changes(
        {name: each.T if name in turned else each for name, each in merged.items()},
        weighted_sum(replaced, weights).mean(replaced[0]),
        _linear(pairs[0]),
    )


def with_changes(base: State, changes: Changes) -> dict[str, torch.Tensor]:
    """Returns the weights of a model plus merged products, so that it needs no adapter.

    Args:
        base: State dict of the adapted model.
        changes: From `merged_products`.

    Raises:
        MergeError: The model has no such weight of this shape, or it is unclear whether a square
            weight is stored as (outputs, inputs).
    """
    state = {name: tensor.clone() for name, tensor in base.items()}
    for name, tensor in changes.replaced.items():
        own = _weight_in(base, name, tensor)
        state[name] = tensor.to(own)
    turned = _turned_otherwise(base, changes.added, set(), changes.linear)
    for name, change in changes.added.items():
        own = _weight_in(state, name, change, name in turned)
        change = change.T if name in turned else change
        state[name] = (own.double() + change.to(own.device)).to(own)
    return state


def factors(
    product: torch.Tensor, A: torch.Tensor, B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the factors A and B with the closest product, both with the same norm.

    The product is (outputs, inputs, kernel ...). A and B are examples of the factors' shapes and
    dtypes.
    """
    U, values, V = torch.linalg.svd(product.flatten(1), full_matrices=False)
    rank = min(len(A), len(values))
    roots = values[:rank].sqrt()
    wide = product.new_zeros(len(A), V.shape[1])
    tall = product.new_zeros(len(U), len(A))
    wide[:rank], tall[:, :rank] = roots[:, None] * V[:rank], U[:, :rank] * roots
    return wide.reshape(A.shape).to(A), tall.reshape(B.shape).to(B)


def _of_dora(weight: torch.Tensor, product: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """Returns the change by DoRA (Liu et al. 2024, eq. 5), all (outputs, inputs, ...)."""
    directed = weight + product
    norms = directed.flatten(1).norm(dim=1)
    factor = magnitude.detach().double().flatten() / norms
    return factor.reshape(-1, *[1] * (weight.dim() - 1)) * directed - weight


def _linear(pairs: Mapping[str, Factors]) -> frozenset[str]:
    return frozenset(name for name, each in pairs.items() if not each.is_embedding)


def _turned_otherwise(
    base: State, changes: State, turned: set[str], linear: frozenset[str]
) -> set[str]:
    """Returns the names of layers with weights in the other order of axes.

    PEFT stores one `fan_in_fan_out` for all layers: the one of the last layer that it wrapped.
    """
    square = set()
    found = set()
    for name in linear:
        shape = changes[name].shape
        own = base.get(name)
        if own is None or len(shape) != 2:
            continue
        if shape[0] == shape[1]:
            square.add(name)
        elif own.shape == (shape if name in turned else shape[::-1]):
            found.add(name)
    if found and square:
        raise MergeError(
            f"{', '.join(sorted(found))} show that `fan_in_fan_out` of the configuration does not "
            f"hold for all layers, so it is unknown for {', '.join(sorted(square))}. Merge each "
            "adapter into its model by PEFT's `merge_and_unload`, and merge the models."
        )
    return found


def _weight_in(base: State, name: str, change: torch.Tensor, turned: bool = False) -> torch.Tensor:
    """Returns the model's weight for a change, perhaps transposed."""
    own, shape = base.get(name), change.shape[::-1] if turned else change.shape
    if own is None or own.shape != shape:
        given = "is missing" if own is None else f"has {tuple(own.shape)}"
        raise MergeError(
            f"The adapters change {name}, which {given} in the model; the change has "
            f"{tuple(shape)}. Give the state dict of the model that was adapted."
        )
    return own
