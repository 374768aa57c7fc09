"""Distillation: one network of a model's size learns to imitate an ensemble."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mode
from typing import Any

import numpy as np
import torch

from fleet_merging.ensembles import Ensemble
from fleet_merging.errors import MergeError, require_choice
from fleet_merging.methods.compression import STARTS, first_network
from fleet_merging.methods.ensembles import (
    concatenation,
    density_gated_ensemble,
    gated_refit,
    require_head,
)
from fleet_merging.methods.facts import MOMENTS, method, required
from fleet_merging.methods.regression import fitted
from fleet_merging.methods.seeded_draws import content_order, content_seed, digest, reordered
from fleet_merging.modules import copied, load_tensors, tensors_of, uncompiled
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.gate import RowGate, draw
from fleet_merging.moments.measurement import Moments, combine, solve
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.moments.rows import input_rows
from fleet_merging.problem import MergeProblem, MergeResult, Teacher
from fleet_merging.queries.query import MAX_COMPONENTS, MixtureQuery, MomentQuery
from fleet_merging.queries.traffic import DataHolderError, TrafficMeter
from fleet_merging.symmetry.table import State

_TEACHERS: dict[str, Callable[[MergeProblem], MergeResult]] = {
    "density_gated_ensemble": density_gated_ensemble,
    "gated_refit": gated_refit,
    "concatenation": concatenation,
    "mean": lambda problem: MergeResult(tuple(problem.models)),
}

_RIDGE = 1e-3
"""Weight of a model's own matrix in the fit, as in the other methods."""

_GRADIENT_NORM = 1.0
"""Norm to which longer gradients are shortened, as in the training of policies."""


@method(
    "distillation",
    "Ensemble distillation",
    source="Lin et al. 2020",
    needs=(*MOMENTS, "module"),
    asks="what its teacher asks",
)
def distillation(
    problem: MergeProblem,
    *,
    teacher: str = "density_gated_ensemble",
    start: str = "average",
    mixtures: int = 0,
    rank: int = 96,
    states: int = 4096,
    steps: int = 1000,
    rate: float = 1e-3,
    batch: int = 256,
    refit: float = 0.0,
) -> MergeResult:
    """Trains a merge of the models to act as an ensemble of them, by squared errors.

    Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, on outputs. The network in
    training reads the problem's unlabelled `inputs`, or states drawn from the Gaussians of a
    density-gated ensemble. With `mixtures`, each data holder is asked once more, for Gaussians of
    states, or for models with a memory of consecutive states: see `moments.mixture`. Adam
    descends, with a rate that falls to zero along a cosine. The result does not depend on the
    order of the models.

    With encoders, states are features. All models, and the network in training, first get the
    start's encoders, which stay constant. With heads that denoise, outputs are the answers for
    noisy actions on the way to actions that the ensemble draws.

    Args:
        problem: The models with their `module`, and the inputs of the teacher and the start.
        teacher: "density_gated_ensemble", "gated_refit", "concatenation", or the "mean" of the
            outputs.
        start: "average" of the weights, or "structured_compression".
        mixtures: Largest number of Gaussians of a data holder's first states of episodes, and of
            its other states; 0 asks for none.
        rank: Number of principal axes of the features of encoders along which Gaussians lie.
        states: Number of states to draw if there are no inputs.
        steps: Number of steps.
        rate: Learning rate of the first step.
        batch: Number of drawn states in a step; given inputs keep their batches.
        refit: Ridge of the last fit of the last layer to the data holders' labels, see
            `head_refit`; 0 for no such fit.

    Raises:
        MergeError: An option is unknown or out of range, the module or a source of inputs is
            missing, or the models read something else than the drawn states; or see the teacher and
            the start.
        MessageError: A data holder's answer is invalid.
    """
    require_choice("The teacher", teacher, _TEACHERS)
    require_choice("The start", start, STARTS)
    if (
        min(states, batch, rank, steps + 1) < 1
        or not 0 < rate < math.inf
        or not 0 <= refit < math.inf
        or not 0 <= mixtures <= MAX_COMPONENTS
    ):
        raise MergeError(
            f"{states} states of {mixtures} Gaussians along {rank} axes in batches of {batch}, "
            f"{steps} steps, the rate {rate} and the ridge {refit} are out of range. Give at least "
            "one state and axis, batches of at least 1, a rate above 0, a ridge of at least 0, and "
            f"at most {MAX_COMPONENTS} Gaussians."
        )
    if refit:
        require_head(problem)
    module: torch.nn.Module = required(problem, "module")
    order = content_order(problem.models)
    problem = reordered(problem, order)
    first, meter = first_network(problem, start), TrafficMeter()
    if mixtures and problem.encoders is not None:
        models = with_common_encoders(problem, first.state, meter)
        problem = replace(problem, models=models)
    taught = _TEACHERS[teacher](problem)
    ensemble = Ensemble(module, taught.members, taught.gate, problem.output)
    if mixtures:
        found = _measured(problem, mixtures, rank, first.state, meter)
        drawn = _drawn(problem, found, states, batch)
    else:
        drawn = () if problem.inputs is not None else _of_gate(problem, taught.gate, states, batch)
    with torch.no_grad(), uncompiled():
        read = _arguments(problem, drawn, taught.gate, ensemble)
        pairs = [(arguments, ensemble(*arguments)) for arguments in read]
    student = copied(module)
    load_tensors(student, first.state)
    _train(problem, student, pairs, steps, rate)
    own = tuple(first.permutations[position] for position in np.argsort(order))
    state = {name: tensor.detach().clone() for name, tensor in tensors_of(student).items()}
    if refit:
        last = problem.affine_maps[-1]
        state = fitted(problem, last, state, "labels", (), refit, meter, combine)
    return MergeResult.network(state, own, taught.traffic + first.traffic + meter.traffic)


def with_common_encoders(
    problem: MergeProblem, encoding: State, meter: TrafficMeter
) -> tuple[State, ...]:
    """Returns the models with the encoders of another one.

    The matrix that reads features is fitted to its former outputs. The data holder is asked once
    for the second moments of the features of both models' encoders on its data, side by side. A
    model that has these encoders already is unchanged.

    Raises a `MergeError` if encoders or data holders are missing, or the matrix has groups.
    """
    encoders = problem.encoders
    if encoders is None:
        raise MergeError("The models' encoders are unknown. Give the problem's `encoders`.")
    reader = {each.name: each for each in problem.affine_maps}[encoders.reader]
    if reader.groups > 1:
        raise MergeError(f"{reader.name!r} reads features in groups. Use concatenation.")
    common = {name: encoding[name] for name in encoders.parameters}
    adopted: Sequence[State] = [{**model, **common} for model in problem.models]
    queries = [
        MomentQuery(new, (reader.name,), beside=(own,))
        for new, own in zip(adopted, problem.models, strict=True)
    ]
    holders = required(problem, "data_holders")
    answers = meter.ask_all_moments(holders, queries, problem.affine_maps)
    return tuple(
        _reading(reader, new, answer[reader.name])
        for new, answer in zip(adopted, answers, strict=True)
    )


def _reading(reader: AffineMap, model: State, moments: Moments) -> State:
    """Returns a model with a matrix fitted to its outputs for its own encoders' features.

    Moments are of the map's new inputs, its own former ones, and 1.
    """
    matrix, second = reader.matrix(model), moments.inputs[0]
    count = reader.weights[0].of(model).flatten(1).shape[1]  # without a memory's own units
    inputs, last = matrix.shape[1] - 1, len(second) - 1
    new, own = ([*range(first, first + count), last] for first in (0, inputs))
    entries = [*range(count), inputs]
    wanted = second[new][:, own] @ matrix[0, entries]
    fit = Moments(second[new][:, new][None], wanted[None])
    changed = matrix.clone()
    changed[0, entries] = solve(fit, matrix[:, entries], _RIDGE)[0]
    return reader.with_matrix(model, changed)


def _measured(
    problem: MergeProblem, count: int, rank: int, encoding: State, meter: TrafficMeter
) -> list[StateMixture]:
    """Asks each data holder for a mixture of its states, or of a model's features of them."""
    holders = required(problem, "data_holders")
    of_features = (0, None) if problem.encoders is None else (rank, encoding)
    seeds = [content_seed(problem.seed, 3, digest(model)) for model in problem.models]
    queries = [
        MixtureQuery(count, seed, *of_features, consecutive=problem.with_memory) for seed in seeds
    ]
    found = list(meter.ask_mixtures(holders, queries))
    size = problem.state_size or mode(each.size for each in found)  # robust to a false one
    for holder, each in zip(holders, found, strict=True):
        if each.size != size:
            raise DataHolderError(
                holder,
                f"Its mixture has states of {each.size} numbers, but the models read {size}. Leave "
                "out this data holder.",
            )
    return found


def _drawn(
    problem: MergeProblem, found: Sequence[StateMixture], count: int, batch: int
) -> Sequence[torch.Tensor]:
    """Returns batches of states, or of sequences of them, drawn from mixtures.

    Sequences are twice as long as episodes, since a policy that fails continues.
    """
    weights = problem.normalized_weights.tolist()
    steps = 1
    if problem.with_memory:
        steps = round(2 * sum(w * each.steps for w, each in zip(weights, found, strict=True)))
    drawn = []
    for model, weight, each in zip(problem.models, weights, found, strict=True):
        generator = torch.Generator().manual_seed(content_seed(problem.seed, 4, digest(model)))
        own = max(1, round(count * weight / steps))
        if problem.with_memory:
            drawn.append(each.sequences(own, steps, generator))
        else:
            drawn.append(each.states(own, generator))
    return _mixed(problem, torch.cat(drawn)).split(max(1, batch // steps))


def _mixed(problem: MergeProblem, rows: torch.Tensor) -> torch.Tensor:
    order = np.random.default_rng((problem.seed, 1)).permutation(len(rows))
    return rows[torch.from_numpy(order)]


def _of_gate(
    problem: MergeProblem, gate: RowGate | None, count: int, batch: int
) -> Sequence[torch.Tensor]:
    """Returns batches of states drawn from a gate's Gaussians, by the averaging weights."""
    if gate is None or problem.with_memory or problem.encoders is not None:
        raise MergeError(
            "Distillation needs inputs, and this ensemble has no Gaussians to draw them from. "
            "With memory or encoders, no ensemble has. Ask data holders for `mixtures`, give the "
            "merge problem's `inputs`, or use the teacher density_gated_ensemble."
        )
    drawn = []
    for model, weight, mean, factor in zip(
        problem.models, problem.normalized_weights.tolist(), gate.means, gate.factors, strict=True
    ):
        seed = content_seed(problem.seed, 0, digest(model))
        generator = torch.Generator().manual_seed(seed)
        drawn.append(draw(mean, factor, max(1, round(count * weight)), generator))
    return _mixed(problem, torch.cat(drawn)).split(batch)


def _arguments(
    problem: MergeProblem, drawn: Sequence[torch.Tensor], gate: RowGate | None, teacher: Teacher
) -> list[tuple[Any, ...]]:
    """Returns batches of arguments for drawn states, or else the given inputs."""
    if drawn and problem.arguments_of is not None:
        generator = np.random.default_rng((problem.seed, 5))
        return [problem.arguments_of(states, teacher, generator) for states in drawn]
    if drawn:
        return [_as_they_are(problem, gate, states) for states in drawn]
    if problem.inputs is not None and (given := list(problem.inputs())):
        return given
    raise MergeError("`inputs` is empty. Give at least one batch, or leave it out.")


def _as_they_are(
    problem: MergeProblem, gate: RowGate | None, states: torch.Tensor
) -> tuple[Any, ...]:
    """Returns states, (count, n) or with memory (count, steps, n), as the argument of models.

    Raises a `MergeError` if the models read something else.
    """
    example = problem.example
    if problem.module is not None and len(example) == 1 and isinstance(example[0], torch.Tensor):
        (given,) = example
        first = gate.map if gate is not None else problem.affine_maps[0].name
        rows = input_rows(copied(problem.module), problem.models[0], example, [first])
        (read,) = rows[first]
        own = given.reshape(-1, given.shape[-1])
        whole = len(read) == len(own) and torch.allclose(read[:, : own.shape[1]], own)
        if whole and given.dim() == states.dim() and given.shape[-1] == states.shape[-1]:
            return (states.to(given),)
    raise MergeError(
        "The models' input is not one tensor of states, so sampled states do not fit. Give "
        "unlabelled `inputs`, or `arguments_of`."
    )


def _train(
    problem: MergeProblem,
    student: torch.nn.Module,
    pairs: list[tuple[tuple[Any, ...], torch.Tensor]],
    steps: int,
    rate: float,
) -> None:
    optimizer = torch.optim.Adam(student.parameters(), rate)
    generator, order = np.random.default_rng((problem.seed, 2)), []
    for step in range(steps):
        order = order or generator.permutation(len(pairs)).tolist()
        arguments, targets = pairs[order.pop()]
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.zero_grad()
        with uncompiled():
            outputs = problem.output(student(*arguments))
        (outputs - targets).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), _GRADIENT_NORM)
        optimizer.step()
