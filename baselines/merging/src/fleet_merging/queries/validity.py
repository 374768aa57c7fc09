"""Validity checks of answers, one function for each kind of query, applied where answers arrive.

Answers with another name, shape or type than requested are refused, so that no observation or
action is sent by mistake. (Gradients and moments still carry information about the data, and
moments of a few rows determine the rows: this is no encryption.) Answers that no data can have are
refused, too: moments that are not positive semidefinite, targets beyond the largest label, states
beyond the clip. Robots are also compared, see `outlier`. Possible but false answers are accepted: a
reversed sign, or a modest factor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fleet_merging.errors import MessageError
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import Moments
from fleet_merging.moments.mixture import LIMIT, StateMixture
from fleet_merging.queries.query import DataAnswer, LossAnswer, LossQuery, MixtureQuery, MomentQuery

LARGEST_RATIO = 1e4
"""Largest ratio of a robot's size to the others' median, or to 1, see `outlier`. Scaled inputs,
actions and weights are of the order of 1. Honest robots with another unit of length, with blows or
of another task differ by up to some thousand."""

_LONGEST = 10**4
"""Largest plausible mean number of states of an episode in a mixture."""

_ROUNDING = 2.0**-22
"""Four times the relative error of a number in float32."""

_LEAST = 2.0**-126
"""Smallest number that float32 holds with its relative error."""

_TOLERANCE = 1e-3
"""Relative tolerance of bounds on sums of rounded numbers."""


@dataclass(frozen=True)
class Limits:
    """Known bounds of a data holder's answers.

    Attributes:
        noise: Standard deviation of the noise in its moments, see `LocalDataHolder`.
        label: Largest magnitude of a label.
        steps: Largest number of steps of its data.
        least_loss: The smallest possible loss of a model.
    """

    noise: float = 0.0
    label: float = math.inf
    steps: float = math.inf
    least_loss: float = -math.inf


NO_LIMITS = Limits()
"""The limits of an unknown data holder."""

MALFORMED = (AttributeError, IndexError, TypeError, ValueError, RuntimeError)
"""Errors of a check of an answer with parts of unexpected types."""


class NotFiniteError(MessageError):
    """An answer has NaN or infinity, due to its data holder or to the queried model."""


Sizes = dict[str, float]
"""Magnitudes of an answer by name, for the comparison of data holders."""


def outlier(sizes: Sequence[Sizes]) -> tuple[int, str] | None:
    """Returns the index of a data holder with far larger numbers, and a text on them, or None.

    A size is compared with the lower median of all, and at least with 1. So one of two or more can
    neither raise the limit nor, by small numbers, lower it below `LARGEST_RATIO`. If more than half
    send huge numbers, nobody is named.
    """
    for name in sizes[0] if sizes else ():
        each = [own[name] for own in sizes]
        limit = LARGEST_RATIO * max(1.0, sorted(each)[(len(each) - 1) // 2])
        if (largest := max(each)) > limit:
            return each.index(largest), (
                f"its {name} is {largest:.3g}, more than {LARGEST_RATIO:g} times the median of all"
            )
    return None


def checked_loss(
    answer: object, query: LossQuery, limits: Limits = NO_LIMITS
) -> tuple[LossAnswer, Sizes]:
    """Returns an answer to a query for a loss with its sizes, the gradient in the model's order.

    Raises a `MessageError` if it is no such answer, has parts that were not requested, or is not
    finite.
    """
    if not isinstance(answer, LossAnswer) or not isinstance(answer.gradient, Mapping):
        raise MessageError(f"A data holder was asked for a loss, but answered {_kind(answer)}.")
    for name, tensor in answer.gradient.items():
        parameter = query.model.get(name)
        if (
            parameter is None
            or not isinstance(tensor, torch.Tensor)
            or not query.gradient
            or not parameter.is_floating_point()
            or tensor.shape != parameter.shape
            or tensor.dtype != parameter.dtype
        ):
            raise MessageError(
                f"An answer holds the gradient {name!r} of the shape "
                f"{tuple(getattr(tensor, 'shape', ()))}, which was not requested. Expected a loss, "
                "and gradients of the parameters of the query in their shapes and dtypes."
            )
    loss = answer.loss
    if not isinstance(loss, float):
        raise MessageError(f"A data holder answered with the loss {loss!r}; expected: a float.")
    if not is_finite(answer):
        raise NotFiniteError(
            f"A data holder answered with the loss {loss}, or with gradients, that are not finite. "
            "Check its data and its loss; a lower rate may help."
        )
    if loss < limits.least_loss:
        raise MessageError(f"The loss {loss:g} is below {limits.least_loss:g}, the smallest one.")
    gradient = {
        name: answer.gradient[name].to(parameter.device)
        for name, parameter in query.model.items()
        if name in answer.gradient
    }
    norms = [float(each.double().norm()) for each in gradient.values()]
    sizes = {"root of the loss": math.sqrt(abs(loss)), "norm of the gradient": math.hypot(*norms)}
    return LossAnswer(loss, gradient), sizes


def checked_moments(
    answer: object, query: MomentQuery, limits: Limits = NO_LIMITS, *, maps: Sequence[AffineMap]
) -> tuple[dict[str, Moments], Sizes]:
    """Returns an answer to a query for moments with its sizes, in the order of the query.

    Raises a `MessageError` if it is no such answer, has parts that were not requested, or is not
    finite. Or no data have these moments.
    """
    if not isinstance(answer, dict):
        raise MessageError(f"A data holder was asked for moments, but answered {_kind(answer)}.")
    known = {each.name: each for each in maps}
    if unasked := sorted(map(str, set(answer) - set(query.maps))):
        raise MessageError(f"An answer holds {', '.join(unasked)}, which was not requested.")
    sizes: Sizes = {}
    for name in query.maps:
        groups, _, outputs = known[name].matrix(query.model).shape
        size = query.size(known[name])
        parts = known[name].parts if query.target == "labels" else 1
        groups, outputs = groups * parts, outputs // parts
        columns = {"none": 0, "inputs": size}.get(query.target, outputs)
        found = answer.get(name)
        if not isinstance(found, Moments):
            raise MessageError(f"In an answer, the moments of {name!r} are missing.")
        for what, tensor, width in (
            ("inputs", found.inputs, size),
            ("targets", found.targets, columns),
        ):
            shape = (groups, size, width)
            if tuple(tensor.shape) != shape or tensor.dtype != torch.float64:
                raise MessageError(
                    f"In an answer, the {what} of {name!r} are {tensor.dtype} "
                    f"{tuple(tensor.shape)}; expected: {shape}."
                )
            if not _is_finite(tensor):
                raise NotFiniteError(f"In an answer, {what} of {name!r} hold NaN or infinity.")
        sizes |= _sizes_of_data(name, found, query, limits, parts)
    return {name: answer[name] for name in query.maps}, sizes


def _sizes_of_data(
    name: str, found: Moments, query: MomentQuery, limits: Limits, parts: int
) -> Sizes:
    """Returns the sizes of moments that some data have, or raises an error if none do.

    Moments are scaled to the root mean square of each input, for equal treatment of small ones.
    Means of products of x and a target t satisfy c^T G^-1 c <= mean t^2. This also holds for each
    matrix larger than G. Weights of parts of labels have the mean 1, so each is at most the number
    of parts.
    """
    no_data = f"No data have the moments of {name!r}: "
    count, spread, gain = found.inputs.shape[1], [], 0.0
    ridge, largest = count * _ROUNDING, limits.label * math.sqrt(parts)
    deviation, other = (
        1.5 * limits.noise * _root_mean_square(each) for each in (found.inputs, found.targets)
    )
    slack, reach = deviation * (3 * math.sqrt(count) + 6), math.sqrt(count) + 6
    ones = found.inputs[:, -1, -1].unflatten(0, (-1, parts)).mean(1)
    if not bool(((ones - 1).abs() <= _TOLERANCE + reach * deviation).all()):
        raise MessageError(f"{no_data}the mean of 1 is {float(ones[0]):.6g}.")
    for G, C in zip(found.inputs, found.targets, strict=True):
        squares = G.diagonal() + slack + _LEAST
        if not bool((squares > 0).all()):
            raise MessageError(f"{no_data}a mean square is {float(G.diagonal().min()):.3g}.")
        scale = squares.rsqrt()
        scaled = scale[:, None] * G * scale
        scaled.diagonal().fill_(1 + ridge)
        factor, failed = torch.linalg.cholesky_ex(scaled)
        if failed or not torch.allclose(scaled, scaled.T, rtol=0, atol=_TOLERANCE):
            raise MessageError(
                f"{no_data}they are not symmetric and positive semidefinite: the variance in some "
                "direction is negative."
            )
        spread.append(G.diagonal()[:-1])
        if not C.numel():
            continue
        products = scale[:, None] * C
        explained = torch.linalg.solve_triangular(factor, products, upper=False).norm(dim=0).max()
        noise = other * math.sqrt(reach / deviation) if deviation > 0 else 0.0
        if query.target == "labels" and float(explained) > largest * (1 + _TOLERANCE) + noise:
            raise MessageError(
                f"{no_data}their labels have a root mean square of {float(explained):.3g}; "
                f"expected at most {largest:g}."
            )
        if query.target == "inputs" and not bool(
            ((C[:, -1] - G[:, -1]).abs() * scale <= _TOLERANCE + reach * (deviation + other)).all()
        ):
            raise MessageError(f"{no_data}the means of inputs and of their products with 1 differ.")
        gain = max(gain, float(products.abs().max() / G.diagonal().max().sqrt()))
    root = math.sqrt(max(0.0, float(torch.cat(spread).median()))) if count > 1 else 0.0
    return {f"input of {name}": root, f"ratio of targets to inputs of {name}": gain}


def checked_mixture(
    answer: object, query: MixtureQuery, limits: Limits = NO_LIMITS
) -> tuple[StateMixture, Sizes]:
    """Returns an answer to a query for a mixture, and no sizes, since all its numbers have bounds.

    Raises a `MessageError` if it is no such answer, has more Gaussians, or no data have it.
    """
    if not isinstance(answer, StateMixture):
        raise MessageError(f"A data holder was asked for a mixture, but answered {_kind(answer)}.")
    weights, means, covariances = answer.weights, answer.means, answer.covariances
    count, size = (*means.shape, 0, 0)[:2]
    states = 1 + query.consecutive
    axes = torch.ones(1, size // states) if answer.axes is None else answer.axes
    shapes = [tuple(each.shape) for each in (weights, means, covariances)]
    if (
        shapes != [(count,), (count, size), (count, size, size)]
        or type(answer.starts) is not int
        or not 1 <= answer.starts <= min(count, query.components)
        or count - answer.starts > query.components
        or answer.consecutive is not query.consecutive
        or not states <= size == states * (size // states)
        or axes.dim() != 2
        or axes.shape[1] != size // states
        or (answer.axes is not None and axes.shape[1] != query.rank)
        or any(each.dtype != torch.float32 for each in (weights, means, covariances, axes))
    ):
        raise MessageError(
            f"An answer holds {answer.starts} Gaussians of first states and others, of the shapes "
            f"{shapes}, with axes {tuple(axes.shape)}; expected: (K,), (K, m), (K, m, m) with "
            f"m = {'2 n' if query.consecutive else 'n'}, and perhaps (size, {query.rank}) in "
            f"float32, of 1 to {query.components} and at most as many."
        )
    if (
        not all(map(_is_finite, (weights, means, covariances, axes)))
        or not bool((weights > 0).all())
        or abs(float(weights.double().sum()) - 1) > _TOLERANCE
        or float(weights[: answer.starts].sum()) * min(_LONGEST, limits.steps) < 1 - _TOLERANCE
        or not all(map(_is_semidefinite, covariances.double()))
    ):
        raise MessageError(
            "In an answer, Gaussians hold NaN, infinity, negative variances, weights that do not "
            "sum to 1, or episodes without end: no data have such Gaussians."
        )
    if not _is_clipped(answer):
        raise MessageError(
            f"In an answer, Gaussians lie beyond {LIMIT:g}, where states are clipped: no data have "
            "such Gaussians."
        )
    return answer, {}


def _is_clipped(mixture: StateMixture) -> bool:
    """Whether states within the clip can have these Gaussians.

    Along principal axes, no number's mean square exceeds its mean square in all states. At least
    half of the states have a next one, so their mean square is at most twice as large.
    """
    size, clip = mixture.means.shape[1], LIMIT * (1 + _TOLERANCE)
    means, variances = mixture.means.double(), mixture.covariances.double()
    if mixture.axes is None:
        diagonals = variances.diagonal(dim1=1, dim2=2)
        return bool((means.abs() <= clip).all() and (diagonals + means.square() <= clip**2).all())
    axes, weights = mixture.axes.double(), mixture.weights.double()
    n = axes.shape[1]
    for own in (slice(start, start + n) for start in range(0, size, n)):
        squares = (means[:, own] @ axes.T).square()
        squares += torch.einsum("ij,kjl,il->ki", axes, variances[:, own, own], axes)
        if not bool((weights @ squares <= 2 * clip**2).all()):
            return False
    return True


def _is_semidefinite(covariance: torch.Tensor) -> bool:
    squares = covariance.diagonal() + _LEAST
    if not bool((squares > 0).all()):
        return False
    scaled = squares.rsqrt()[:, None] * covariance * squares.rsqrt()
    scaled.diagonal().fill_(1 + len(covariance) * _ROUNDING)
    return not torch.linalg.cholesky_ex(scaled).info and torch.allclose(
        scaled, scaled.T, rtol=0, atol=_TOLERANCE
    )


CHECKS = {LossQuery: checked_loss, MomentQuery: checked_moments, MixtureQuery: checked_mixture}
"""The check of each kind of query."""


def is_finite(answer: DataAnswer) -> bool:
    """Whether all numbers of an answer are finite."""
    if isinstance(answer, LossAnswer):
        return all(map(_is_finite, (torch.tensor(answer.loss), *answer.gradient.values())))
    if isinstance(answer, StateMixture):
        return all(map(_is_finite, (answer.weights, answer.means, answer.covariances)))
    return all(_is_finite(each.inputs) and _is_finite(each.targets) for each in answer.values())


def _is_finite(values: torch.Tensor) -> bool:
    return bool(torch.isfinite(values).all())


def _root_mean_square(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _kind(answer: object) -> str:
    return f"a {type(answer).__name__}"
