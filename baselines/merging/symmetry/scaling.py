"""Scaled permutations of ReLU networks, and the scaling of least norm (Propositions 2 and 3).

Where an activation is positively homogeneous, as ReLU is, a unit's output may be multiplied by any
d > 0 and divided out where it is read. With permutations this is the paper's G_scaled: a group,
since P D = D' P with D' = P D P^T (its footnote writes P D').

Proposition 3 says that the model of least norm among its scalings is unique, so that training which
keeps norms small leaves only permutations to align. With d = exp(tau) the squared norm is

    F(tau) = sum_k w_k^2 exp(2 <a_k, tau>),   a_k = +1 for the written unit, -1 for the read one,

and convex. The paper assumes that no bias is zero, which gives at most one minimizer and not always
one: a unit that nothing reads shrinks for ever, and then there is none. What is needed and enough
is that the graph of nonzero weights, with all that is fixed (inputs, biases, outputs) as one node,
is strongly connected; that is asked here. The minimizer is where each unit's written weights have
the same norm as its read ones: Osborne's balancing of matrices (1960).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import ScalingError
from fleet_tools.baselines.merging.symmetry.sizes import solve
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

Scales = Mapping[str, np.ndarray]
"""By free name, a positive number for each unit."""


def scale(
    symmetry: Symmetry, scales: Scales, state: State, written: Mapping[str, int] | None = None
) -> dict[str, torch.Tensor]:
    """Multiplies units, and divides where they are read: W -> D_out W D_in^-1, b -> D_out b.

    The function stays if every unit named passes a positively homogeneous activation (ReLU, leaky
    ReLU, a maximum, none) on its way and no normalization or gate, and recurrent states begin at 0.

    Args:
        symmetry: The table.
        scales: By free name, shape (n,); units without a name here stay.
        state: The model, which stays as it is.
        written: The axis along which a parameter writes where it is not 0, such as 1 for a
            transposed convolution or an embedding. Along the others it reads.

    Returns:
        New tensors.

    Raises:
        ScalingError: A name is not free or has an owner, or scales are not n positive numbers.
        UncoveredParameterError, AxisSizeError: The model does not fit the table.
    """
    units = _Units.of(symmetry, state, tuple(scales))
    tau = units.join(scales)
    scaled = {}
    for name, tensor in state.items():
        # In float64, so that scales of 1 change no bit.
        factor = torch.as_tensor(np.exp(units.exponent(name, tau, written)), device=tensor.device)
        moved = tensor.is_floating_point() and name in units.along
        scaled[name] = (tensor.double() * factor).to(tensor) if moved else tensor.clone()
    return scaled


def minimal_norm_scales(
    symmetry: Symmetry,
    state: State,
    names: Sequence[str],
    written: Mapping[str, int] | None = None,
    start: Scales | None = None,
) -> dict[str, np.ndarray]:
    """The scales under which a model's norm is least: Proposition 3, by Newton's method.

    Args:
        symmetry: The table.
        state: The model, which stays as it is.
        names: Of the free axes whose units may be scaled.
        written: As for `scale`.
        start: Where to begin; at ones if not given. The result does not depend on it.

    Returns:
        By name, shape (n,); `scale` applies them.

    Raises:
        ScalingError: A name is not free or has an owner, some unit is reached from nothing or
            reaches nothing, so that there is no unique minimum, or the solver did not arrive.
        UncoveredParameterError, AxisSizeError: The model does not fit the table.
    """
    from scipy.optimize import minimize
    from scipy.sparse.linalg import LinearOperator, cg

    units = _Units.of(symmetry, state, tuple(dict.fromkeys(names)))
    if not names:
        return {}
    squares = {
        name: state[name].detach().double().cpu().numpy() ** 2
        for name in units.along
        if state[name].is_floating_point()
    }
    _require_minimum(units, squares, written)
    total = sum(values.sum() for values in squares.values())

    def weighed(tau):
        return {
            name: values * np.exp(2 * units.exponent(name, tau, written)) / total
            for name, values in squares.items()
        }

    def norm(tau):
        terms = weighed(tau)
        return sum(term.sum() for term in terms.values()), 2 * units.gather(terms, written)

    def curvature(tau, direction):
        terms = weighed(tau)
        turned = {
            name: term * units.exponent(name, direction, written) for name, term in terms.items()
        }
        return 4 * units.gather(turned, written)

    begin = np.zeros(units.count) if start is None else units.join(start)
    tau = minimize(
        norm, begin, jac=True, hessp=curvature, method="trust-ncg", options={"gtol": 1e-6}
    ).x
    # Differences of norms are lost in rounding before the minimizer is; plain Newton steps go on.
    for _ in range(3):
        hessian = LinearOperator(
            (len(tau), len(tau)), lambda v, tau=tau: curvature(tau, v), dtype=float
        )
        tau = tau - cg(hessian, norm(tau)[1], rtol=1e-10)[0]
    rest = float(np.abs(norm(tau)[1]).max(initial=0.0))
    if not rest <= 1e-9:
        raise ScalingError(
            f"The scaling of least norm was not found: a slope of {rest:.2g} of the norm is left. "
            "Start from scales nearer to it; weights may span too many orders of magnitude."
        )
    return units.part(np.exp(tau))


@dataclass(frozen=True)
class _Units:
    """Units that may be scaled, numbered one after another.

    Attributes:
        sizes: How many there are of each name.
        along: For each parameter that has some, the number of the unit at each place of each of
            its axes; `count` where it is none of them.
    """

    sizes: Mapping[str, int]
    along: Mapping[str, tuple[np.ndarray, ...]]

    @property
    def count(self) -> int:
        return sum(self.sizes.values())

    @classmethod
    def of(cls, symmetry: Symmetry, state: State, names: tuple[str, ...]) -> "_Units":
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
        solved = solve(symmetry.axes, {name: tuple(value.shape) for name, value in state.items()})

        def numbers(parameter: str, at: int) -> np.ndarray:
            parts = []
            for block, product in enumerate(symmetry.axes[parameter][at]):
                shape = solved.of(product, parameter, at, block)
                part = np.full(shape, count)
                for place, factor in enumerate(product):
                    if factor.name in first:
                        number = first[factor.name] + np.arange(shape[place])
                        part = np.broadcast_to(_along(number, place, len(shape)), shape)
                parts.append(part.ravel())
            return np.concatenate(parts)

        along = {
            name: tuple(numbers(name, at) for at in range(len(axes)))
            for name, axes in symmetry.axes.items()
        }
        touched = {
            name: axes for name, axes in along.items() if any((axis < count).any() for axis in axes)
        }
        return cls(sizes, touched)

    def join(self, scales: Scales) -> np.ndarray:
        """The logarithms of scales, shape (count,)."""
        logarithms = []
        for name, size in self.sizes.items():
            values = np.asarray(scales.get(name, ()), dtype=float)
            if values.shape != (size,) or not (np.isfinite(values) & (values > 0)).all():
                raise ScalingError(
                    f"The scales of {name!r} are of the shape {values.shape}. Give {size} positive "
                    "numbers."
                )
            logarithms.append(np.log(values))
        return np.concatenate(logarithms) if logarithms else np.zeros(0)

    def part(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The inverse of concatenation."""
        cuts = np.cumsum(list(self.sizes.values()))[:-1]
        return dict(zip(self.sizes, np.split(values, cuts), strict=True)) if self.sizes else {}

    def exponent(self, parameter: str, tau: np.ndarray, written) -> np.ndarray:
        """<a_k, tau> for each entry of a parameter; broadcasts to its shape."""
        axes = self.along.get(parameter, ())
        padded = np.append(tau, 0.0)
        terms = (
            _sign(parameter, at, written) * _along(padded[axis], at, len(axes))
            for at, axis in enumerate(axes)
        )
        return sum(terms, start=np.zeros([1] * len(axes)))

    def gather(self, values: Mapping[str, np.ndarray], written) -> np.ndarray:
        """sum_k a_k values_k, shape (count,)."""
        gathered = np.zeros(self.count + 1)
        for parameter, array in values.items():
            for at, axis in enumerate(self.along[parameter]):
                others = tuple(other for other in range(array.ndim) if other != at)
                sums = np.bincount(axis, array.sum(axis=others), self.count + 1)
                gathered += _sign(parameter, at, written) * sums
        return gathered[:-1]


def _sign(parameter: str, at: int, written: Mapping[str, int] | None) -> int:
    return 1 if at == (written or {}).get(parameter, 0) else -1


def _along(values: np.ndarray, at: int, dims: int) -> np.ndarray:
    """A vector along one of so many dimensions, to broadcast."""
    return values.reshape([-1 if other == at else 1 for other in range(dims)])


def _require_minimum(units: _Units, squares: Mapping[str, np.ndarray], written) -> None:
    """F has one minimizer if and only if the graph of its terms is strongly connected.

    F grows without bound in every direction v but those with <a_k, v> <= 0 for all k: those that
    never rise along an edge read -> written, where what is fixed stays at 0.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    outside = units.count
    edges = []
    for parameter, values in squares.items():
        axes = units.along[parameter]
        places = np.nonzero(values)
        numbers = [axis[place] for axis, place in zip(axes, places, strict=True)]
        at = (written or {}).get(parameter, 0)
        to = numbers[at]
        reads = [number for other, number in enumerate(numbers) if other != at]
        # At most one axis reads units; the others (kernels) are outside.
        source = np.minimum.reduce([np.full(len(to), outside), *reads])
        edges.append(np.stack([source, to]))
    source, to = np.concatenate(edges, axis=1) if edges else np.zeros((2, 0), dtype=int)
    graph = coo_array((np.ones(len(to)), (source, to)), shape=(outside + 1, outside + 1))
    _, labels = connected_components(graph.tocsr(), directed=True, connection="strong")
    lost = np.flatnonzero(labels[:-1] != labels[-1])
    if len(lost):
        named = [
            f"{name} {index}"
            for name, numbers in units.part(np.arange(units.count)).items()
            for index in np.flatnonzero(np.isin(numbers, lost)).tolist()
        ]
        raise ScalingError(
            f"{len(lost)} units ({', '.join(named[:6])}{', ...' if len(named) > 6 else ''}) are "
            "reached from no input or bias, or reach no output, along weights that are not zero: "
            "their norm has no unique minimum. Leave their axes out, or prune them."
        )
