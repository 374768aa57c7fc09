"""Adapters of low rank (LoRA), merged as products and not as factors.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021: an adapter changes a weight
W (outputs, inputs) to W + s B A, with A (r, inputs), B (outputs, r) and s = alpha / r. The factors
are not unique: B M and M^-1 A make the same change for any invertible M, so means of factors have
no meaning, while means of products do. A merge of products of n adapters has a rank of up to n r;
it is added to the weights as it is (`with_changes`), or factored again by its largest singular
values.

Adapters are state dicts as PEFT writes them: pairs of entries whose names differ by `lora_A` and
`lora_B`, for linear layers and convolutions.
"""

from collections.abc import Mapping, Sequence

import torch

from fleet_tools.baselines.merging.average import AveragingWeights, normalize
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.spectra import combined
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.table import State

_A, _B = "lora_A", "lora_B"

FACTORED = ("average", "ties", "tsv_m", "wudi")
"""Combinations of products that have largest singular values; isotropic ones have equal ones, of
which none is to be left out."""


def lora(
    problem: MergeProblem, *, by: str = "average", density: float = 0.2, scale: float = 1.0
) -> MergeResult:
    """Merges the products of adapters of one rank, and factors the result to that rank.

    By Eckart and Young, the result is the adapter of that rank that is closest to the merged
    product. Entries that are no factors, such as trained biases, are averaged. The factor s is the
    adapters', which have the same.

    Args:
        problem: The adapters; their table has a fixed axis for the rank.
        by: How products are combined: "average", "ties", "tsv_m" or "wudi", each with the defaults
            of the method of that name; the base is a product of 0.
        density: Of `ties`.
        scale: Multiple of the merged product.

    Raises:
        MergeError: `by` is unknown, a factor has no other, there are no factors, or `density` or
            `scale` is out of range.
    """
    if by not in FACTORED:
        raise MergeError(
            f"Products are combined by {by!r}; known are {', '.join(FACTORED)}. Isotropic ones "
            "have no adapter of low rank: `merged_products` returns them as changes of weights."
        )
    if not abs(scale) < float("inf"):
        raise MergeError(f"The scale is {scale}. Give a finite number; 1 keeps the merged product.")
    merged = merged_products(problem.models, problem.averaging_weights, by=by, density=density)
    identities = tuple(problem.group.identity() for _ in problem.models)
    state = problem.mean()
    for name, product in merged.items():
        A, B = state[name], state[_other(name)]
        state[name], state[_other(name)] = factors(scale * product, A, B)
    return MergeResult.network(state, identities)


def merged_products(
    adapters: Sequence[State],
    averaging_weights: AveragingWeights | None = None,
    *,
    by: str = "average",
    density: float = 0.2,
    factor: float | Sequence[float] = 1.0,
) -> dict[str, torch.Tensor]:
    """Returns the merged changes of weights by adapters, whose ranks may differ.

    Args:
        adapters: State dicts of adapters of the same weights.
        averaging_weights: One for each adapter; equal ones if None.
        by: See `lora`; or "iso_c" or "iso_cts".
        density: See `lora`.
        factor: s = alpha / r of the adapters, or of each.

    Returns:
        Changes by the name of A, float64, of the shape of the weights.

    Raises:
        MergeError: See `lora`; or adapters change different weights.
    """
    several = [factor] * len(adapters) if isinstance(factor, int | float) else list(factor)
    changes = [products(each, s) for each, s in zip(adapters, several, strict=True)]
    for index, each in enumerate(changes):
        if differing := sorted(set(each) ^ set(changes[0])):
            raise MergeError(
                f"Adapters 0 and {index} change different weights: only one of them has "
                f"{', '.join(differing)}. Merge adapters of the same weights."
            )
    weights = normalize(averaging_weights, len(adapters)).tolist()
    return dict(combined(changes, weights, by, density))


def products(adapter: State, factor: float = 1.0) -> dict[str, torch.Tensor]:
    """Returns the change of each weight, s B A, by the name of A.

    Args:
        adapter: State dict of an adapter.
        factor: s = alpha / r.

    Returns:
        float64, shape (outputs, inputs, kernel ...).

    Raises:
        MergeError: A factor has no other of its rank, or there are none.
    """
    pairs = {name: _other(name) for name in adapter if _A in name.split(".")}
    unpaired = {name for name in adapter if _B in name.split(".")} ^ set(pairs.values())
    if not pairs or unpaired:
        raise MergeError(
            f"An adapter of low rank has pairs of entries {_A} and {_B}; "
            + (f"without a pair: {', '.join(sorted(unpaired))}." if unpaired else "it has none.")
            + " Give the adapter's own state dict, as PEFT stores it."
        )
    found = {}
    for name, other in pairs.items():
        A, B = adapter[name].detach().double(), adapter[other].detach().double()
        if B.flatten(1).shape[1] != len(A):
            raise MergeError(
                f"{name} has the rank {len(A)}, and {other} {B.flatten(1).shape[1]}. Give the "
                "factors of one adapter."
            )
        found[name] = factor * (B.flatten(1) @ A.flatten(1)).reshape(len(B), *A.shape[1:])
    return found


def factors(
    product: torch.Tensor, A: torch.Tensor, B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the factors A and B whose product is closest, both with the same norm.

    Args:
        product: Shape (outputs, inputs, kernel ...).
        A: Gives shape and dtype of A, and the rank.
        B: Gives shape and dtype of B.
    """
    U, values, V = torch.linalg.svd(product.flatten(1), full_matrices=False)
    rank = min(len(A), len(values))
    roots = values[:rank].sqrt()
    wide = product.new_zeros(len(A), V.shape[1])
    tall = product.new_zeros(len(U), len(A))
    wide[:rank], tall[:, :rank] = roots[:, None] * V[:rank], U[:, :rank] * roots
    return wide.reshape(A.shape).to(A), tall.reshape(B.shape).to(B)


def with_changes(
    base: State, changes: Mapping[str, torch.Tensor], names: Mapping[str, str] | None = None
) -> dict[str, torch.Tensor]:
    """Returns the weights of a model plus merged products, so that it needs no adapter.

    Args:
        base: State dict of the model that was adapted.
        changes: Changes by the name of A, from `merged_products`.
        names: The changed weight's name for each name of A; if None, it is that before `lora_A`
            with `.weight`, without PEFT's prefix `base_model.model.`.

    Raises:
        MergeError: The model has no such weight of this shape.
    """
    state = {name: tensor.clone() for name, tensor in base.items()}
    for name, change in changes.items():
        weight = (names or {}).get(name) or _weight(name)
        if weight not in state or state[weight].shape != change.shape:
            given = f"has {tuple(state[weight].shape)}" if weight in state else "is missing"
            raise MergeError(
                f"{name} changes {weight}, which {given} in the model; the change has "
                f"{tuple(change.shape)}. Give its name in `names`."
            )
        state[weight] = (state[weight].double() + change).to(state[weight])
    return state


def _other(name: str) -> str:
    return ".".join(_B if part == _A else part for part in name.split("."))


def _weight(name: str) -> str:
    module = name.split(f".{_A}")[0].removeprefix("base_model.model.")
    return f"{module}.weight"
