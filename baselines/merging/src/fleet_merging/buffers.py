"""Buffers of a state dict (not learned), and their treatment in a merge.

Names, PyTorch's own, identify them, and for the last kind also numbers:

    running_mean, running_var       statistics of the data, with which only averages can be made: a
                                    sum with other signs or factors may have a negative variance
    _extra_state                    a module's own data: the same in all models
    weight_orig, _u, _v, or         a spectral norm: W / (u . W v), with the first singular vectors
    parametrizations.weight         of W, which are unit vectors and belong to one W only
    .original, .0._u, .0._v
    parametrizations.weight.0.base  an orthogonal matrix, by which PyTorch's orthogonal
                                    parametrization multiplies a learned rotation
"""

from collections.abc import Iterator

import torch

from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State

VARIANCE = "running_var"
EXTRA_STATE = "_extra_state"
_NOT_LEARNED = ("running_mean", VARIANCE, EXTRA_STATE)


def learned_tensors(state: State) -> dict[str, torch.Tensor]:
    """Returns the learned tensors of a model, on which optimizers may act.

    Methods and server optimizers average all others. Published FedOpt code does the same: FedML's
    has gradients only of parameters, and takes buffers from the average.
    """
    vectors = {name for weight, *pair in _spectral_norms(state) for name in pair}
    return {
        name: tensor
        for name, tensor in state.items()
        if tensor.is_floating_point()
        and name.rpartition(".")[2] not in _NOT_LEARNED
        and name not in vectors
        and not _is_base(name, tensor)
    }


@torch.no_grad()
def with_singular_vectors(
    state: State, form: State, former: State | None = None
) -> dict[str, torch.Tensor]:
    """Returns a model with spectral norms that have the first singular vectors of their weights.

    An average of unit vectors is a unit vector only if they are equal. Equal ones are kept.
    Averages of orthogonal matrices are
    replaced by the nearest orthogonal ones.

    Args:
        state: A merged model.
        form: One of the merged models.
        former: A model that gave it its vectors: these are also computed anew if weights differ.

    Raises:
        MergeError: A spectral norm divides a weight that is computed from others.
    """
    renewed = dict(state)
    if not any(name.endswith((".base", "_u")) for name in form):
        return renewed
    for name in (name for name, tensor in form.items() if _is_base(name, tensor)):
        if not _is_base(name, state[name]) and bool(torch.isfinite(state[name]).all()):
            exact = torch.promote_types(state[name].dtype, torch.float64)
            left, _, right = torch.linalg.svd(state[name].to(exact))
            renewed[name] = (left @ right).to(state[name])
    for weight, *pair in _spectral_norms(form):
        moved = former is not None and bool(weight) and not _close(state[weight], former[weight])
        if not moved and all(_is_unit(state[name]) for name in pair):
            continue
        if not weight:
            raise MergeError(
                f"{pair[0]} and {pair[1]} belong to the spectral norm of a weight that also has "
                "other parametrizations, so they cannot be computed for a merged model. Remove the "
                "parametrizations before you store the models, by "
                "torch.nn.utils.parametrize.remove_parametrizations."
            )
        u, v = (form[name].double() for name in pair)
        # A weight with two axes of the same size may be a matrix or its transpose.
        matrices = {dim: _matrix(form[weight], dim) for dim in _rows(form[weight], u, v)}
        dim = max(matrices, key=lambda dim: abs(float(u @ (matrices[dim] @ v))))
        matrix = _matrix(state[weight], dim)
        if bool(torch.isfinite(matrix).all()):
            left, _, right = torch.linalg.svd(matrix, full_matrices=False)
            sign = 1.0 if float(left[:, 0] @ u) >= 0 else -1.0
            for name, vector in zip(pair, (left[:, 0], right[0]), strict=True):
                renewed[name] = (sign * vector).to(state[name])
    return renewed


def _is_base(name: str, tensor: torch.Tensor) -> bool:
    """Whether a tensor is the orthogonal matrix of an orthogonal parametrization."""
    named = name.endswith(".base") and ".parametrizations." in f".{name}"
    exact = tensor.is_floating_point() or tensor.is_complex()
    if not (named and exact and tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]):
        return False
    product = tensor.detach().mH @ tensor.detach()
    tolerance = max(1e-4, 8 * torch.finfo(tensor.dtype).eps)
    return torch.allclose(product, torch.eye(len(product[-1])).to(product), atol=tolerance)


def _spectral_norms(model: State) -> Iterator[tuple[str, str, str]]:
    """Yields the names of the weight, u and v of each spectral norm of a model.

    The weight's name is empty if it is computed by other parametrizations.
    """
    for u in model:
        if not u.endswith("_u") or (v := f"{u[:-1]}v") not in model:
            continue
        if not (_is_unit(model[u]) and _is_unit(model[v])):
            continue
        parametrization, _, number = u.removesuffix("._u").rpartition(".")
        if u.endswith("._u") and ".parametrizations." in f".{parametrization}":
            weight = f"{parametrization}.original" if number == "0" else ""
        else:
            weight = f"{u[:-2]}_orig"
        if not weight or (weight in model and _rows(model[weight], model[u], model[v])):
            yield weight, u, v


def _rows(weight: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> list[int]:
    """Returns the axes of a weight that may belong to its rows, if it has singular vectors."""
    sizes = (u.numel(), v.numel())
    return [d for d, n in enumerate(weight.shape) if n and (n, weight.numel() // n) == sizes]


def _matrix(weight: torch.Tensor, rows: int) -> torch.Tensor:
    return weight.detach().movedim(rows, 0).flatten(1).double()


def _is_unit(vector: torch.Tensor) -> bool:
    if vector.dim() != 1 or not vector.is_floating_point():
        return False
    tolerance = max(1e-6, torch.finfo(vector.dtype).eps)
    return abs(float(vector.detach().double().norm()) - 1) <= tolerance


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=1e-5)
