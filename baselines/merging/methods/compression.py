"""Compression: the networks of all models side by side, reduced to the size of one.

Side by side, the networks are one, whose matrices hold theirs as blocks on the diagonal and which
reads the same inputs. Its last matrix is fitted to the labels of all data. From the last layer
down, those of its units are chosen that explain best what is read of them above and, of a recurrent
layer, by the layer itself; matrices between chosen units are fitted to what the united network
computes, and the last one once more to the labels, on what the small network itself computes.

Every fit has a closed form in second moments of what the united network's maps read, which data
holders measure on their own data. A recurrent layer is fitted on the united network's past states,
so that errors do not feed back while it is fitted. Units are chosen by forward selection (Chen,
Billings and Luo 1989), as networks are pruned in He et al. (2017), here over several networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.ensembles import require_head
from fleet_tools.baselines.merging.methods.needs import require_moments
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.measurement import Moments, Target, solve
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import TrafficMeter
from fleet_tools.baselines.merging.queries.query import MomentQuery
from fleet_tools.baselines.merging.symmetry.axes import Axis, Factor
from fleet_tools.baselines.merging.symmetry.table import State

Choice = Literal["greedy", "variance"]

Place = tuple[str | None, int, tuple[int, ...]]
"""Where an entry of an axis lies: its free name, its unit, and its block (of a gate, say). Entries
of fixed axes have no name, and are numbered."""

Chosen = dict[str, list[tuple[int, int]]]
"""Chosen units by free name: number of the model, and of the unit in it."""

_DAMPING = 1e-3
"""Part of a unit's own variance that is added to what is left of it, in the forward selection."""


def compress(problem: MergeProblem, *, ridge: float = 1e-3, choice: str = "greedy") -> MergeResult:
    """Compresses all models into one of their size; each data holder is asked three times.

    Args:
        problem: The models, their data holders with labels, and affine maps, which hold every
            parameter. With a `wide` architecture, the result has its size.
        ridge: Weight of the united network's own matrices in each fit, relative to the mean square
            of what is read.
        choice: "greedy"; or "variance", the units of largest variance, as a control.

    Raises:
        MergeError: Data holders, affine maps or labels are missing, parameters belong to no affine
            map, there are heads or groups of units, or an option has no such value.
        MessageError: A data holder's answer is invalid.
    """
    if choice not in get_args(Choice) or not 0 < ridge < float("inf"):
        raise MergeError(
            f"Units are chosen by {choice!r} with the ridge {ridge}. Known are "
            f"{', '.join(get_args(Choice))}, and a ridge is above 0, such as 0.001."
        )
    require_moments(problem)
    require_head(problem)
    models, maps = problem.models, problem.affine_maps
    union, last, meter = _Union.of(problem), maps[-1], TrafficMeter()
    moments = _measured(problem, maps[:-1], "none", models, meter)
    moments |= _measured(problem, (last,), "labels", models, meter)
    united = {each.name: union.matrix(each) for each in maps[:-1]}
    mean = union.mean(last)
    united[last.name] = solve(moments[last.name], mean[None], ridge)[0]
    chosen = _choose(union, maps, moments, united, choice)
    merged: State = models[0]
    for each in maps:
        rows, wanted = union.inputs(each, chosen), united[each.name]
        if each is not last:
            wanted = wanted[:, union.outputs(each, chosen)]
        second = moments[each.name].inputs[0][rows]
        small = Moments(second[:, rows][None], (second @ wanted)[None])
        merged = each.with_matrix(merged, solve(small, wanted[rows][None], ridge))
    labels = _measured(problem, (last,), "labels", (merged,), meter)[last.name]
    merged = last.with_matrix(merged, solve(labels, last.matrix(merged), ridge))
    permutations = (problem.group.identity(),) * len(models)
    return MergeResult.network(merged, permutations, meter.traffic)


@dataclass(frozen=True)
class _Union:
    """The models side by side.

    Attributes:
        models: Their weights.
        reads, writes: Places of the inputs and of the outputs of each map, by its name.
    """

    models: Sequence[State]
    reads: Mapping[str, list[Place]]
    writes: Mapping[str, list[Place]]

    @classmethod
    def of(cls, problem: MergeProblem) -> "_Union":
        axes, last = problem.symmetry.sized_axes(problem.models[0]), problem.affine_maps[-1]
        held = {name for each in problem.affine_maps for name in each.parameters}
        if left := sorted(set(axes) - held):
            raise MergeError(
                f"Units are chosen by what affine maps read, and {', '.join(left)} belong to none. "
                "Use a method that averages norms and embeddings, such as git_rebasin."
            )
        reads, writes = {}, {}
        for each in problem.affine_maps:
            if each.groups > 1 or any(block.start or block.stop for block in each.weights):
                raise MergeError(
                    f"Units of {each.name!r} cannot be chosen: its matrix has groups or heads. Use "
                    "a method that aligns these, such as git_rebasin, or an ensemble."
                )
            weights = [axes[weight.parameter] for weight in each.weights]
            writes[each.name] = _places(weights[0][:1])
            reads[each.name] = [place for weight in weights for place in _places(weight[1:])]
            if each is not last and any(name is None for name, *_ in writes[each.name]):
                raise MergeError(
                    f"Outputs of {each.name!r} are in fixed order, so that no unit of them can be "
                    "chosen. Give a table in which they are free, or use an ensemble."
                )
        return cls(problem.models, reads, writes)

    def matrix(self, each: AffineMap) -> torch.Tensor:
        """Returns the map of all models as one matrix, (models * in + 1, models * out).

        Inputs of fixed order are the same for all models, and are read from the first one's.
        """
        matrices = [each.matrix(model)[0] for model in self.models]
        whole = torch.block_diag(*(matrix[:-1] for matrix in matrices))
        size = len(self.reads[each.name])
        fixed = [i for i, (name, *_) in enumerate(self.reads[each.name]) if name is None]
        for number in range(1, len(matrices)):
            there = [number * size + i for i in fixed]
            whole[fixed] += whole[there]
            whole[there] = 0.0
        return torch.cat([whole, torch.cat([matrix[-1] for matrix in matrices])[None]])

    def mean(self, last: AffineMap) -> torch.Tensor:
        """Returns the matrix with which the united network returns the mean of the outputs."""
        matrices = [last.matrix(model)[0] / len(self.models) for model in self.models]
        bias = torch.stack([matrix[-1] for matrix in matrices]).sum(0)
        return torch.cat([*(matrix[:-1] for matrix in matrices), bias[None]])

    def inputs(self, each: AffineMap, chosen: Chosen) -> list[int]:
        """Returns the rows of the united matrix that the small network reads."""
        places = self.reads[each.name]
        return [*_indices(places, chosen), len(self.models) * len(places)]

    def outputs(self, each: AffineMap, chosen: Chosen) -> list[int]:
        """Returns the columns of the united matrix that the small network computes."""
        return _indices(self.writes[each.name], chosen)


def _indices(places: Sequence[Place], chosen: Chosen) -> list[int]:
    """Returns the indices of chosen units among the places of all models, one after another."""
    index = {place: number for number, place in enumerate(places)}
    found = []
    for name, unit, block in places:
        model, own = (0, unit) if name is None else chosen[name][unit]
        found.append(model * len(places) + index[name, own, block])
    return found


def _places(axes: Sequence[Axis]) -> list[Place]:
    """Returns the place of each entry of axes that are flattened together."""
    parts = [[place for term in axis for place in _places_of_product(term)] for axis in axes]
    places: list[Place] = []
    for entries in product(*parts):
        free = [place for place in entries if place[0] is not None]
        if len(free) > 1:
            raise MergeError("Units of an axis with two free names cannot be chosen one by one.")
        blocks = [block if name else (unit,) for name, unit, block in entries]
        block = tuple(number for each in blocks for number in each)
        places.append((free[0][0], free[0][1], block) if free else (None, len(places), ()))
    return places


def _places_of_product(factors: Sequence[Factor]) -> list[Place]:
    free = [number for number, factor in enumerate(factors) if not factor.fixed]
    if len(free) > 1 or any(factors[number].owner for number in free):
        raise MergeError("Units inside of other units, as of heads, cannot be chosen one by one.")
    indices = np.ndindex(*(factor.size or 1 for factor in factors))
    if not free:
        return [(None, number, ()) for number, _ in enumerate(indices)]
    (own,) = free
    return [(factors[own].name, each[own], each[:own] + each[own + 1 :]) for each in indices]


def _choose(
    union: _Union,
    maps: Sequence[AffineMap],
    moments: Mapping[str, Moments],
    united: Mapping[str, torch.Tensor],
    choice: str,
) -> Chosen:
    """Returns the chosen units of every free name, from the last map down.

    Of a map above, the outputs of chosen units count; of a recurrent layer, those of all its units.
    """
    chosen: Chosen = {}
    names = [name for each in reversed(maps) for name, *_ in union.reads[each.name] if name]
    for name in dict.fromkeys(names):
        candidates: list[_Candidates] = []
        units = 0
        for each in maps:
            places, wanted = union.reads[each.name], united[each.name]
            own = [number for number, place in enumerate(places) if place[0] == name]
            if not own:
                continue
            if len({unit for other, unit, _ in places if other == name}) < len(own):
                raise MergeError(f"{each.name!r} reads several numbers of each unit of {name!r}.")
            units = len(own)
            rows = [model * len(places) + i for model in range(len(union.models)) for i in own]
            if each is not maps[-1] and name not in {
                other for other, *_ in union.writes[each.name]
            }:
                wanted = wanted[:, union.outputs(each, chosen)]
            candidates.append(_candidates(moments[each.name].inputs[0], rows, wanted[rows]))
        pick = _greedy if choice == "greedy" else _by_variance
        chosen[name] = sorted(divmod(number, units) for number in pick(candidates, units))
    return chosen


_Candidates = tuple[np.ndarray, np.ndarray]
"""Covariances of units with one another, (n, n), and with what is read of them, (n, k)."""


def _candidates(second: torch.Tensor, rows: list[int], wanted: torch.Tensor) -> _Candidates:
    mean = second[rows, -1]
    covariance = second[rows][:, rows] - mean.outer(mean)
    products = covariance @ wanted
    variance = float((wanted * products).sum())  # so that what each map above reads counts the same
    return covariance.numpy(), (products / max(variance, 1e-24) ** 0.5).numpy()


def _greedy(candidates: Sequence[_Candidates], count: int) -> list[int]:
    """Returns the units that explain most of what is left, one after another.

    A unit explains sum_k C_jk^2 / G_jj of what is read, where the covariances G of units and C with
    what is read are those without what the units before explain.
    """
    left = [(G.copy(), C.copy(), _DAMPING * np.diagonal(G) + 1e-12) for G, C in candidates]
    order: list[int] = []
    for _ in range(count):
        gains = [(C**2).sum(1) / (np.diagonal(G) + damping) for G, C, damping in left]
        gain = np.sum(gains, axis=0)
        gain[order] = -1.0
        best = int(np.argmax(gain))
        order.append(best)
        for G, C, damping in left:
            explained = G[:, best] / (G[best, best] + damping[best])
            C -= np.outer(explained, C[best])
            G -= np.outer(explained, G[best])
    return order


def _by_variance(candidates: Sequence[_Candidates], count: int) -> list[int]:
    variance = sum(np.diagonal(G) for G, _ in candidates)
    return np.argsort(-np.asarray(variance), kind="stable")[:count].tolist()


def _measured(
    problem: MergeProblem,
    maps: Sequence[AffineMap],
    target: Target,
    models: Sequence[State],
    meter: TrafficMeter,
) -> dict[str, Moments]:
    """Returns pooled moments of what maps of some models read, side by side, by map."""
    if not maps:
        return {}
    first, *beside = models
    query = MomentQuery(first, tuple(each.name for each in maps), target, beside=tuple(beside))
    shares = problem.normalized_weights.tolist()
    return meter.ask_pooled(problem.data_holders, query, problem.affine_maps, shares)
