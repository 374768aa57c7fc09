"""Distillation: one network of a model's size learns to do what an ensemble does."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fleet_tools.baselines.merging.ensembles import Ensemble
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.ensembles import (
    concatenation,
    density_gate,
    gated_refit,
)
from fleet_tools.baselines.merging.methods.needs import required
from fleet_tools.baselines.merging.methods.rebasin import match_models
from fleet_tools.baselines.merging.methods.seeded_draws import (
    content_order,
    content_seed,
    digest,
    reordered,
)
from fleet_tools.baselines.merging.modules import (
    copied,
    load_tensors,
    tensors_of,
    uncompiled,
)
from fleet_tools.baselines.merging.moments.gate import RowGate
from fleet_tools.baselines.merging.moments.rows import input_rows
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult

_TEACHERS: dict[str, Callable[[MergeProblem], MergeResult]] = {
    "density_gate": density_gate,
    "gated_refit": gated_refit,
    "concatenation": concatenation,
    "mean": lambda problem: MergeResult(tuple(problem.models)),
}

_STARTS = ("average", "matching")


def distillation(
    problem: MergeProblem,
    *,
    teacher: str = "density_gate",
    start: str = "average",
    states: int = 4096,
    steps: int = 1000,
    rate: float = 1e-3,
    batch: int = 256,
) -> MergeResult:
    """Trains an average of the models to act as an ensemble of them, by squared errors.

    Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, on outputs. What the
    student reads are the problem's unlabelled `inputs`, or else states drawn from the Gaussians of
    the teacher's gate; no data holder is asked for more than the teacher needs. Adam descends, with
    a rate that falls to zero along a cosine. The result does not depend on the order of the models.

    Args:
        problem: The models with their `module`, and what the teacher needs.
        teacher: "density_gate", "gated_refit", "concatenation", or the "mean" of the outputs.
        start: "average" of the weights, or that after their "matching".
        states: Number of states that are drawn if there are no inputs.
        steps: Number of steps.
        rate: Learning rate of the first step.
        batch: Number of drawn states in a step; inputs are taken batch by batch as they are given.

    Raises:
        MergeError: `teacher` or `start` is unknown, the module is missing, or there are no inputs
            and no gate to draw them from. Or the models read something else than the states of the
            gate, numbers are too small, or see the teacher.
        UnsoundMergeError: The student's weights are not finite: the rate is too large.
    """
    if teacher not in _TEACHERS or start not in _STARTS:
        raise MergeError(
            f"The teacher is {teacher!r} and the start {start!r}; known are the teachers "
            f"{', '.join(_TEACHERS)} and the starts {', '.join(_STARTS)}."
        )
    if min(states, batch, steps + 1) < 1 or not 0 < rate < math.inf:
        raise MergeError(
            f"{states} states in batches of {batch}, {steps} steps and the rate {rate} train "
            "nothing. Give at least one state, batches of at least 1, and a rate above 0."
        )
    module: torch.nn.Module = required(problem, "module")
    order = content_order(problem.models)
    problem = reordered(problem, order)
    taught = _TEACHERS[teacher](problem)
    ensemble = Ensemble(module, taught.members, taught.gate, problem.output)
    read = _inputs(problem, taught.gate, states, batch)
    with torch.no_grad(), uncompiled():
        pairs = [(arguments, ensemble(*arguments)) for arguments in read]
    identity = problem.group.identity()
    permutations = (
        match_models(problem) if start == "matching" else tuple(identity for _ in problem.models)
    )
    student = copied(module)
    load_tensors(student, problem.mean(permutations))
    _train(problem, student, pairs, steps, rate)
    own = tuple(permutations[position] for position in np.argsort(order))
    state = {name: tensor.detach().clone() for name, tensor in tensors_of(student).items()}
    return MergeResult.network(state, own, taught.traffic)


def _inputs(
    problem: MergeProblem, gate: RowGate | None, count: int, batch: int
) -> list[tuple[Any, ...]]:
    """Returns batches of arguments: those given, or states drawn from the gate's Gaussians."""
    if problem.inputs is not None:
        if given := list(problem.inputs()):
            return given
        raise MergeError("There are no unlabelled inputs. Give at least one batch, or no inputs.")
    if gate is None:
        raise MergeError(
            "The student needs inputs: this teacher has no gate from whose Gaussians they could be "
            "drawn. Give the merge problem's `inputs`, or the teacher density_gate."
        )
    rows = draw_states(problem, gate, count)
    return [arguments_of(problem, gate, each) for each in rows.split(batch)]


def draw_states(problem: MergeProblem, gate: RowGate, count: int) -> torch.Tensor:
    """Returns states drawn from a gate's Gaussians by the averaging weights, (about count, n)."""
    drawn = []
    for model, weight, mean, factor in zip(
        problem.models, problem.normalized_weights.tolist(), gate.means, gate.factors, strict=True
    ):
        seed = content_seed(problem.seed, 0, digest(model))
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(mean), max(1, round(count * weight)), generator=generator)
        # The covariance is the inverse of factor @ factor.T.
        drawn.append(mean + torch.linalg.solve_triangular(factor.T, noise, upper=True).T)
    rows = torch.cat(drawn)
    mixed = np.random.default_rng((problem.seed, 1)).permutation(len(rows))
    return rows[torch.from_numpy(mixed)]


def arguments_of(problem: MergeProblem, gate: RowGate, states: torch.Tensor) -> tuple[Any, ...]:
    """Returns the arguments with which the models read states of a gate.

    Raises:
        MergeError: The models read something else, and the problem has no `arguments_of`.
    """
    if problem.arguments_of is not None:
        return problem.arguments_of(states)
    example = problem.example
    if problem.module is not None and len(example) == 1 and isinstance(example[0], torch.Tensor):
        (given,) = example
        rows = input_rows(copied(problem.module), problem.models[0], example, [gate.map])
        (read,) = rows[gate.map]
        if read.shape == given.shape and torch.allclose(read, given) and given.dim() == 2:
            return (states.to(given),)
    raise MergeError(
        "States drawn from the gate are no inputs of these models, which read something else than "
        "one tensor of rows. Give unlabelled `inputs`."
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
        optimizer.step()
