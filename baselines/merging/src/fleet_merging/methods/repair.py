"""REPAIR: averages of models whose units have the means and deviations of the models' units."""

from collections.abc import Sequence

import torch
from torch import nn

from fleet_merging.average import average
from fleet_merging.methods.needs import require, require_moments
from fleet_merging.methods.rebasin import align
from fleet_merging.modules import (
    copied,
    keeps_statistics,
    uncompiled,
)
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.table import State

Statistics = tuple[torch.Tensor, torch.Tensor]
"""Means and variances of what the units of a map return, (groups, units) each."""


def repair(
    problem: MergeProblem, *, alignment: str = "weights", floor: float = 1e-6
) -> MergeResult:
    """Averages aligned models, and restores the mean and deviation of each hidden unit.

    Jordan et al., "REPAIR: REnormalizing Permuted Activations for Interpolation Repair", 2023. The
    units of an average vary less than the models' (variance collapse). Here, as there, the
    mean and the standard deviation of what each map returns (before the activation) become the
    weighted means of the models', on the data of all. This goes from the first map to the last but
    one, each in the network whose earlier maps are repaired. The affine change is a part of the
    map's own weights and bias; without a bias, only deviations are restored.

    Where a BatchNorm reads what a map returns, its averaged weight and bias are these means
    already, and only its statistics are measured again. `MergeProblem.module` and `example` tell
    where. Statistics come from second moments of the maps' inputs: each data holder is asked about
    each model once, and about the merged network once for each map.

    Args:
        problem: The models, their data holders and affine maps; with BatchNorm also the module.
        alignment: "none", "weights" or "activations", see `rebasin.align`.
        floor: Units with a lower variance than this fraction of the map's mean are only shifted.

    Raises:
        MergeError: `alignment` is unknown, or something is missing.
        MessageError: A data holder's answer is invalid.
    """
    require_moments(problem)
    norms = _norms_after(problem)
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    models = problem.permuted(permutations)
    hidden = problem.affine_maps[:-1]
    wanted = [each for each in hidden if each.name not in norms]
    targets = _targets(problem, wanted, models, meter)
    merged: State = average(models, problem.averaging_weights)
    for each in hidden:
        mean, variance = _measured(problem, (each,), merged, meter)[each.name]
        if norm := norms.get(each.name):
            merged = {
                **merged,
                f"{norm}.running_mean": _like(mean, merged[f"{norm}.running_mean"]),
                f"{norm}.running_var": _like(variance, merged[f"{norm}.running_var"]),
            }
            continue
        aimed, deviation = targets[each.name]
        usable = variance > floor * variance.mean()
        factor = torch.where(usable, deviation / variance.where(usable, 1).sqrt(), 1.0)
        matrix = each.matrix(merged) * factor[:, None]
        if each.biases:
            matrix[:, -1] += aimed - factor * mean
        merged = each.with_matrix(merged, matrix)
    return MergeResult.network(merged, permutations, meter.traffic)


def _targets(
    problem: MergeProblem, maps: Sequence[AffineMap], models: Sequence[State], meter: TrafficMeter
) -> dict[str, Statistics]:
    """Returns the weighted means of the models' means and standard deviations."""
    found: dict[str, Statistics] = {}
    if not maps:
        return found
    for model, weight in zip(models, problem.normalized_weights.tolist(), strict=True):
        for name, (mean, variance) in _measured(problem, maps, model, meter).items():
            before = found.get(name, (torch.zeros(()), torch.zeros(())))
            found[name] = before[0] + weight * mean, before[1] + weight * variance.sqrt()
    return found


def _measured(
    problem: MergeProblem, maps: Sequence[AffineMap], model: State, meter: TrafficMeter
) -> dict[str, Statistics]:
    """Returns statistics of what maps of a model return on the data of all holders."""
    query = MomentQuery(model, tuple(each.name for each in maps))
    shares = problem.normalized_weights.tolist()
    pooled = meter.ask_pooled(problem.data_holders, query, problem.affine_maps, shares)
    found = {}
    for each in maps:
        G, M = pooled[each.name].inputs, each.matrix(model)
        mean = (G[:, -1:] @ M)[:, 0]  # the last input is 1
        square = (M * (G @ M)).sum(1)
        found[each.name] = mean, (square - mean.square()).clamp(min=0)
    return found


def _norms_after(problem: MergeProblem) -> dict[str, str]:
    """Returns the name of the BatchNorm with statistics that reads a map's outputs, by map."""
    if not any(name.endswith("running_var") for name in problem.models[0]):
        return {}
    require(problem, "module", "example")
    module, example = problem.module, problem.example
    assert module is not None  # or the requirement had failed
    names = {each.name for each in problem.affine_maps}
    writers: dict[int, str] = {}
    outputs, found = [], {}

    def write(name: str):
        def hook(module: nn.Module, arguments: object, output: torch.Tensor) -> None:
            writers[id(output)] = name
            outputs.append(output)  # so that no other tensor gets its id

        return hook

    def read(name: str):
        def hook(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            if (writer := writers.get(id(arguments[0]))) is not None:
                found[writer] = name

        return hook

    trial = copied(module)
    for name, each in trial.named_modules():
        if name in names:
            each.register_forward_hook(write(name))
        elif keeps_statistics(each):
            each.register_forward_pre_hook(read(name))
    with torch.no_grad(), uncompiled():
        trial(*example)
    return found


def _like(values: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    return values.flatten().to(form)
