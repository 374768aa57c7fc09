"""Structured compression: one network selected from the networks of all models side by side.

Side by side, the networks are one, which reads the same inputs. Its matrices hold theirs as blocks
on the diagonal, and its last matrix is fitted to the labels of all data. From the last layer down,
units are chosen that best explain the inputs of the layers above, and of a recurrent layer its own
inputs. Matrices between chosen units are fitted to the outputs of the united network. The last one
is fitted once more to the labels, on its inputs in the small network.

Every fit has a closed form in second moments of the inputs of the united network's maps, which data
holders measure on their own data. A recurrent layer is fitted on the united network's past states,
so that errors do not feed back during the fit. Units are chosen by forward selection (Chen,
Billings and Luo 1989), as He et al. (2017) prune networks, here over several networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fleet_merging.errors import MergeError, listed
from fleet_merging.methods.ensembles import require_head
from fleet_merging.methods.facts import MOMENTS, method, refusal, require_moments, shared
from fleet_merging.methods.rebasin import naive_average
from fleet_merging.methods.widths import Place, ResultForm, numbered, places
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import Moments, Target, solve
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.axes import Axis
from fleet_merging.symmetry.table import State

Chosen = dict[str, list[tuple[int, int]]]
"""Chosen units by free name: number of the model, and of the unit in it."""

_DAMPING = 1e-3
"""Fraction of a unit's variance added to its unexplained variance, in the forward selection."""

Candidates = tuple[np.ndarray, np.ndarray]
"""Covariances of units with one another, (n, n), and with later layers' inputs, (n, k)."""


@method(
    "structured_compression",
    "Structured compression",
    source="this project",
    needs=MOMENTS,
    asks="moments of all networks; with labels, twice",
    layers=("Linear", "Conv", "RNN", "recurrent Conv"),
)
def structured_compression(
    problem: MergeProblem, *, ridge: float = 1e-3, width: int | None = None
) -> MergeResult:
    """Selects one network from all models; each data holder is asked three times.

    The network has the models' size. Given a `resized` architecture or a `width`, it has another
    one, up to the width of all models together. So narrow models become one network with at most
    all their units, and full matrices between these.

    Args:
        problem: The models, their data holders with labels, and affine maps, which hold every
            parameter.
        ridge: Weight of the united network's own matrices in each fit, relative to the mean square
            of the inputs.
        width: Number of units of hidden layers, for networks with a width, see
            `MergeProblem.at_width`; None for the models' own.

    Raises:
        MergeError: Data holders, affine maps or labels are missing, parameters belong to no affine
            map, or there are heads or groups of units. Or the new network is of another kind or has
            more units than all models together, or an option is out of range.
        MessageError: A data holder's answer is invalid.
    """
    if not 0 < ridge < float("inf"):
        raise MergeError(f"The ridge is {ridge}. Give a number above 0, such as 0.001.")
    require_moments(problem)
    require_head(problem)
    models, form = problem.models, ResultForm.of(problem, width)
    union, meter = _Union.of(problem, form), TrafficMeter()
    maps, last = union.maps, union.maps[-1]
    moments = _measured(problem, maps[:-1], "none", models, meter)
    moments |= _measured(problem, (last,), "labels", models, meter)
    united = {each.name: union.matrix(each) for each in maps[:-1]}
    mean = union.mean(last)
    united[last.name] = solve(moments[last.name], mean[None], ridge)[0]
    products = {name: each.inputs.mean(0) for name, each in moments.items()}  # over parts of labels
    chosen = _choose(union, maps, products, united)
    merged = {**form.state, **union.shared}
    for each in maps:
        rows, wanted = union.inputs(each, chosen), united[each.name]
        if each is not last:
            wanted = wanted[:, union.outputs(each, chosen)]
        second = products[each.name][rows]
        small = Moments(second[:, rows][None], (second @ wanted)[None])
        merged = each.with_matrix(merged, solve(small, wanted[rows][None], ridge))
    labels = _measured(problem, (last,), "labels", (merged,), meter)[last.name]
    merged = last.with_matrix(merged, solve(labels, last.matrix(merged), ridge))
    if form.module is not None:
        return replace(MergeResult.network(merged, traffic=meter.traffic), module=form.module)
    permutations = (problem.group.identity(),) * len(models)
    return MergeResult.network(merged, permutations, meter.traffic)


STARTS = ("average", "structured_compression")
"""First networks of methods that train one."""


def first_network(problem: MergeProblem, start: str) -> MergeResult:
    """Returns the network of the models' size with which a training starts, one of `STARTS`."""
    if start == "average":
        return naive_average(problem)
    return structured_compression(replace(problem, resized=None))


_Places = Mapping[str, list[Place]]
"""Places of the inputs or of the outputs of each map, by its name."""


@dataclass(frozen=True)
class _Union:
    """The models side by side.

    Attributes:
        models: Their weights.
        shared: Tensors without units that are equal in all models, as of a frozen encoder.
        maps: Their maps except for shared ones.
        counts: Number of units of the small network, by free name.
        reads, writes: Inputs and outputs of each model's maps.
        small_reads, small_writes: Inputs and outputs of the small network's maps.
    """

    models: Sequence[State]
    shared: State
    maps: Sequence[AffineMap]
    counts: Mapping[str, int]
    reads: _Places
    writes: _Places
    small_reads: _Places
    small_writes: _Places

    @classmethod
    def of(cls, problem: MergeProblem, form: ResultForm) -> "_Union":
        axes, last = problem.symmetry.sized_axes(problem.models[0]), problem.affine_maps[-1]
        kept = shared(problem)
        maps = [
            each
            for each in problem.affine_maps
            if each is last or not kept.keys() >= set(each.parameters)
        ]
        held = {name for each in maps for name in each.parameters}.union(kept)
        if left := sorted(set(axes) - held):
            found = f"{listed(left)}, which belong to no affine map"
            raise refusal(problem, "structured_compression", found)
        for each in maps:
            if each.groups > 1 or any(block.start or block.stop for block in each.weights):
                found = f"{each.name!r}, whose matrix has groups or heads"
                raise refusal(problem, "structured_compression", found)
        reads, writes = _places_of(maps, axes)
        for name, outputs in writes.items():
            if name != last.name and any(free is None for free, *_ in outputs):
                raise MergeError(
                    f"Outputs of {name!r} have a fixed order, so no units can be selected. Give a "
                    "table in which they are free, or use an ensemble."
                )
        for name, sizes in problem.group.sizes.items():
            if (wanted := form.counts[name]) > (given := len(problem.models) * sizes[-1]):
                raise MergeError(
                    f"The new network has {wanted} units {name!r}, but all models together have "
                    f"only {given}. Give a network with at most {given}, or use partition."
                )
        small = _places_of(maps, form.axes)
        return cls(problem.models, kept, maps, form.counts, reads, writes, *small)

    def matrix(self, each: AffineMap) -> torch.Tensor:
        """Returns the map of all models as one matrix, (models * in + 1, models * out).

        Inputs of fixed order are the same for all models, and are read once.
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
        """Returns the matrix for which the united network returns the mean of the outputs."""
        matrices = [last.matrix(model)[0] / len(self.models) for model in self.models]
        bias = torch.stack([matrix[-1] for matrix in matrices]).sum(0)
        return torch.cat([*(matrix[:-1] for matrix in matrices), bias[None]])

    def inputs(self, each: AffineMap, chosen: Chosen) -> list[int]:
        """Returns the rows of the united matrix that the small network reads."""
        places = self.reads[each.name]
        own = _indices(places, self.small_reads[each.name], chosen)
        return [*own, len(self.models) * len(places)]

    def outputs(self, each: AffineMap, chosen: Chosen) -> list[int]:
        """Returns the columns of the united matrix that the small network computes."""
        return _indices(self.writes[each.name], self.small_writes[each.name], chosen)


def _places_of(
    maps: Sequence[AffineMap], axes: Mapping[str, tuple[Axis, ...]]
) -> tuple[_Places, _Places]:
    """Returns the inputs and the outputs of maps by name, in tensors with some axes."""
    weights = {each.name: [axes[weight.parameter] for weight in each.weights] for each in maps}
    reads = {
        name: numbered([place for each in parts for place in places(each[1:])])
        for name, parts in weights.items()
    }
    return reads, {name: places(parts[0][:1]) for name, parts in weights.items()}


def _indices(places: Sequence[Place], small: Sequence[Place], chosen: Chosen) -> list[int]:
    """Returns the indices of the small network's entries among the models', one after another."""
    index = {place: number for number, place in enumerate(places)}
    found = []
    for name, unit, block in small:
        model, own = (0, unit) if name is None else chosen[name][unit]
        found.append(model * len(places) + index[name, own, block])
    return found


def _choose(
    union: _Union,
    maps: Sequence[AffineMap],
    products: Mapping[str, torch.Tensor],
    united: Mapping[str, torch.Tensor],
) -> Chosen:
    """Returns the chosen units of every free name, from the last map down.

    For a map above, outputs of chosen units count; for a recurrent layer, all its units'.
    """
    chosen: Chosen = {}
    names = [name for each in reversed(maps) for name, *_ in union.reads[each.name] if name]
    for name in dict.fromkeys(names):
        candidates: list[Candidates] = []
        units = 0
        for each in maps:
            places, wanted = union.reads[each.name], united[each.name]
            own = [number for number, place in enumerate(places) if place[0] == name]
            if not own:
                continue
            if each is not maps[-1] and name not in {
                other for other, *_ in union.writes[each.name]
            }:
                wanted = wanted[:, union.outputs(each, chosen)]
            # Maps read units once, or several times, as of an encoder of two clouds.
            times: dict[int, list[int]] = {}
            for i in own:
                times.setdefault(places[i][1], []).append(i)
            units, starts = len(times), range(0, len(union.models) * len(places), len(places))
            parts = [
                [start + i for start in starts for i in part]
                for part in zip(*times.values(), strict=True)
            ]
            candidates += candidates_of(products[each.name], parts, wanted)
        picked = greedy(candidates, union.counts[name])
        chosen[name] = sorted(divmod(number, units) for number in picked)
    return chosen


def _measured(
    problem: MergeProblem,
    maps: Sequence[AffineMap],
    target: Target,
    models: Sequence[State],
    meter: TrafficMeter,
) -> dict[str, Moments]:
    """Returns pooled moments of the inputs of some models' maps, side by side, by map."""
    if not maps:
        return {}
    first, *beside = models
    query = MomentQuery(first, tuple(each.name for each in maps), target, beside=tuple(beside))
    shares = problem.normalized_weights.tolist()
    return meter.ask_pooled(problem.data_holders, query, problem.affine_maps, shares)


def candidates_of(
    second: torch.Tensor, parts: Sequence[list[int]], wanted: torch.Tensor
) -> list[Candidates]:
    """Returns the candidates of one map: a set for each time that it reads the units.

    `second` has the second moments of its inputs, `parts` the rows of the units for each time, and
    `wanted` is its matrix.
    """
    found, variance = [], 0.0
    for rows in parts:
        mean = second[rows, -1]
        covariance = second[rows][:, rows] - mean.outer(mean)
        products = covariance @ wanted[rows]
        found.append((covariance, products))
        variance += float((wanted[rows] * products).sum())
    scale = max(variance, 1e-24) ** 0.5  # so that all maps above have equal weight
    return [(covariance.numpy(), (each / scale).numpy()) for covariance, each in found]


def greedy(candidates: Sequence[Candidates], count: int) -> list[int]:
    """Returns a number of units, each the best to explain the rest of those before.

    A unit explains sum_k C_jk^2 / G_jj of the inputs. The covariances G of units, and C with the
    inputs, are without the parts that the units before explain. So no candidate needs a solution.
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
