"""Scaled permutations of ReLU networks, and the scaling of least norm (Propositions 2 and 3).

If an activation is positively homogeneous, as ReLU is, a unit's output may be multiplied by any
d > 0 and divided by it where it is read. With permutations these scalings form the paper's
G_scaled, a group since P D = D' P with D' = P D P^T (the paper's footnote has P D').

By Proposition 3, the model of least norm among its scalings is unique, so that after training that
keeps norms small only permutations remain to be aligned. With d = exp(tau) the squared norm is

    F(tau) = sum_k w_k^2 exp(2 <a_k, tau>),   a_k = +1 for the written unit, -1 for the read one,

and convex. The paper assumes that no bias is zero, which gives at most one minimizer and not always
one: a unit that nothing reads shrinks without limit. Necessary and sufficient is that the graph of
nonzero weights, with everything fixed (inputs, biases, outputs) as one node, is strongly connected,
which is checked here. At the minimizer each unit's written weights have the same norm as its read
ones, as in Osborne's balancing of matrices (1960).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from fleet_tools.baselines.merging.errors import ScalingError
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

Scales = Mapping[str, ArrayLike]
"""By free name, a positive number for each unit, shape (n,)."""


def scale(
    symmetry: Symmetry, scales: Scales, state: State, written: Mapping[str, int] | None = None
) -> dict[str, torch.Tensor]:
    """Scales units, and divides where they are read: W -> D_out W D_in^-1, b -> D_out b.

    The network's function is preserved if the outputs of all named units pass through positively
    homogeneous functions only (ReLU, leaky ReLU, a maximum, none), through no normalization or
    gate, and recurrent states begin at 0.

    Args:
        symmetry: Table of the model.
        scales: Scales of units; units of other names are not scaled.
        state: The model, which is not changed.
        written: The axis along which a parameter writes if it is not 0, such as 1 for a
            transposed convolution or an embedding. Along the others it reads.

    Returns:
        New tensors.

    Raises:
        ScalingError: A name is not free or has an owner, or scales are not n positive numbers.
        UncoveredParameterError, AxisSizeError: The model does not fit the table.
    """
    units = _Units.of(symmetry, state, tuple(scales), written or {})
    tau = units.join(scales)
    scaled = {}
    for name, tensor in state.items():
        # In float64, so that scales of 1 change no bit.
        factor = torch.as_tensor(np.exp(units.exponent(name, tau)), device=tensor.device)
        affected = tensor.is_floating_point() and name in units.along
        scaled[name] = (tensor.double() * factor).to(tensor) if affected else tensor.clone()
    return scaled


def minimal_norm_scales(
    symmetry: Symmetry,
    state: State,
    names: Sequence[str],
    written: Mapping[str, int] | None = None,
    start: Scales | None = None,
) -> dict[str, np.ndarray]:
    """Returns the scales that minimize a model's norm, Proposition 3, by Newton's method.

    Args:
        symmetry: Table of the model.
        state: The model, which is not changed.
        names: Names of the free axes whose units may be scaled.
        written: See `scale`.
        start: Start of the search, which does not affect the result; ones if None.

    Returns:
        Scales by name, shape (n,); `scale` applies them.

    Raises:
        ScalingError: A name is not free or has an owner, a unit is not reached from any input or
            reaches no output, so that there is no unique minimum, or the solver did not converge.
        UncoveredParameterError, AxisSizeError: The model does not fit the table.
    """
    from scipy.optimize import minimize
    from scipy.sparse.linalg import LinearOperator, cg

    units = _Units.of(symmetry, state, tuple(dict.fromkeys(names)), written or {})
    if not names:
        return {}
    squares = {
        name: state[name].detach().double().cpu().numpy() ** 2
        for name in units.along
        if state[name].is_floating_point()
    }
    _require_minimum(units, squares)
    total = sum(values.sum() for values in squares.values())

    def scaled_squares(tau: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: values * np.exp(2 * units.exponent(name, tau)) / total
            for name, values in squares.items()
        }

    def norm(tau: np.ndarray) -> tuple[float, np.ndarray]:
        terms = scaled_squares(tau)
        return sum(term.sum() for term in terms.values()), 2 * units.gather(terms)

    def curvature(tau: np.ndarray, direction: np.ndarray) -> np.ndarray:
        terms = {
            name: term * units.exponent(name, direction)
            for name, term in scaled_squares(tau).items()
        }
        return 4 * units.gather(terms)

    begin = np.zeros(units.count) if start is None else units.join(start)
    tau = minimize(
        norm, begin, jac=True, hessp=curvature, method="trust-ncg", options={"gtol": 1e-6}
    ).x
    # Near the minimizer, differences of norms vanish in rounding; plain Newton steps do not.
    for _ in range(3):
        shape = (len(tau), len(tau))
        hessian = LinearOperator(
            shape,
            lambda v, tau=tau: curvature(tau, v),
            dtype=float,  # pyright: ignore[reportCallIssue]
        )
        tau = tau - cg(hessian, norm(tau)[1], rtol=1e-10)[0]
    slope = float(np.abs(norm(tau)[1]).max(initial=0.0))
    if not slope <= 1e-9:
        raise ScalingError(
            f"The search for the scaling of least norm did not converge: the relative slope is "
            f"{slope:.2g}. Start from scales closer to it; weights may span too many orders of "
            "magnitude."
        )
    return units.split(np.exp(tau))


@dataclass(frozen=True)
class _Units:
    """Units that may be scaled, with consecutive numbers.

    Attributes:
        sizes: Number of units of each name.
        along: For each parameter that has such units, the number of the unit at each position of
            each of its axes; `count` for all other entries.
        written: The axis along which a parameter writes if it is not 0.
    """

    sizes: Mapping[str, int]
    along: Mapping[str, tuple[np.ndarray, ...]]
    written: Mapping[str, int]

    @property
    def count(self) -> int:
        """Total number of units."""
        return sum(self.sizes.values())

    @classmethod
    def of(
        cls, symmetry: Symmetry, state: State, names: tuple[str, ...], written: Mapping[str, int]
    ) -> "_Units":
        group = symmetry.group(state)
        for name in names:
            if name not in group.sizes or name in group.owners:
                free = sorted(set(group.sizes) - set(group.owners))
                raise ScalingError(
                    f"The units of {name!r} cannot be scaled: it is no free name without an owner. "
                    f"Choose from {', '.join(free) or 'none'}."
                )
        sizes = {name: group.sizes[name][0] for name in names}
        first = dict(zip(names, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
        count = sum(sizes.values())
        sized = symmetry.sized_axes(state)

        def numbers(parameter: str, dim: int) -> np.ndarray:
            parts = []
            for product in sized[parameter][dim]:
                shape = tuple(factor.size or 1 for factor in product)
                part = np.full(shape, count)
                for position, factor in enumerate(product):
                    if factor.name in first:
                        number = first[factor.name] + np.arange(shape[position])
                        part = np.broadcast_to(_along(number, position, len(shape)), shape)
                parts.append(part.ravel())
            return np.concatenate(parts)

        along = {
            name: tuple(numbers(name, dim) for dim in range(len(axes)))
            for name, axes in symmetry.axes.items()
        }
        affected = {
            name: axes for name, axes in along.items() if any((axis < count).any() for axis in axes)
        }
        return cls(sizes, affected, written)

    def join(self, scales: Scales) -> np.ndarray:
        """Returns the logarithms of scales, shape (count,)."""
        logarithms = []
        for name, size in self.sizes.items():
            values = np.asarray(scales.get(name, ()), dtype=float)
            if values.shape != (size,) or not (np.isfinite(values) & (values > 0)).all():
                raise ScalingError(
                    f"The scales of {name!r} have the shape {values.shape}. Give {size} positive "
                    "numbers."
                )
            logarithms.append(np.log(values))
        return np.concatenate(logarithms) if logarithms else np.zeros(0)

    def split(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Returns values of all units, shape (count,), by name."""
        cuts = np.cumsum(list(self.sizes.values()))[:-1]
        return dict(zip(self.sizes, np.split(values, cuts), strict=True)) if self.sizes else {}

    def exponent(self, parameter: str, tau: np.ndarray) -> np.ndarray:
        """Returns <a_k, tau> for each entry of a parameter; it broadcasts to its shape."""
        axes = self.along.get(parameter, ())
        padded = np.append(tau, 0.0)
        terms = (
            self._sign(parameter, dim) * _along(padded[axis], dim, len(axes))
            for dim, axis in enumerate(axes)
        )
        return sum(terms, start=np.zeros([1] * len(axes)))

    def gather(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns sum_k a_k values_k, shape (count,)."""
        gathered = np.zeros(self.count + 1)
        for parameter, array in values.items():
            for dim, axis in enumerate(self.along[parameter]):
                others = tuple(other for other in range(array.ndim) if other != dim)
                sums = np.bincount(axis, array.sum(axis=others), self.count + 1)
                gathered += self._sign(parameter, dim) * sums
        return gathered[:-1]

    def _sign(self, parameter: str, dim: int) -> int:
        return 1 if dim == self.written.get(parameter, 0) else -1


def _along(values: np.ndarray, dim: int, dims: int) -> np.ndarray:
    """Returns a vector as an array with `dims` dimensions, along one of them, to broadcast."""
    return values.reshape([-1 if other == dim else 1 for other in range(dims)])


def _require_minimum(units: _Units, squares: Mapping[str, np.ndarray]) -> None:
    """Raises an error unless F has one minimizer: the graph of its terms is strongly connected.

    F grows without bound in every direction v except those with <a_k, v> <= 0 for all k: those
    that never increase along an edge read -> written, with 0 for everything fixed.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    outside = units.count
    edges = []
    for parameter, values in squares.items():
        axes = units.along[parameter]
        positions = np.nonzero(values)
        numbers = [axis[position] for axis, position in zip(axes, positions, strict=True)]
        written = units.written.get(parameter, 0)
        target = numbers[written]
        reads = [number for dim, number in enumerate(numbers) if dim != written]
        # At most one axis reads units; the others (kernels) are outside.
        source = np.minimum.reduce([np.full(len(target), outside), *reads])
        edges.append(np.stack([source, target]))
    source, target = np.concatenate(edges, axis=1) if edges else np.zeros((2, 0), dtype=int)
    graph = coo_array((np.ones(len(target)), (source, target)), shape=(outside + 1, outside + 1))
    _, labels = connected_components(graph.tocsr(), directed=True, connection="strong")
    lost = np.flatnonzero(labels[:-1] != labels[-1])
    if len(lost):
        named = [
            f"{name} {index}"
            for name, numbers in units.split(np.arange(units.count)).items()
            for index in np.flatnonzero(np.isin(numbers, lost)).tolist()
        ]
        raise ScalingError(
            f"{len(lost)} units ({', '.join(named[:6])}{', ...' if len(named) > 6 else ''}) are "
            "reached from no input or bias, or reach no output, along nonzero weights: the norm "
            "has no unique minimum. Leave their axes out, or prune them."
        )
