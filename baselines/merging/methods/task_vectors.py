"""Task vectors: the differences of models from the weights from which they were trained."""

from collections.abc import Mapping

import torch

from fleet_tools.baselines.merging.buffers import learned_tensors, with_singular_vectors
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult

TaskVector = Mapping[str, torch.Tensor]
"""Differences in float64, by the names of a model's learned tensors."""


def task_vectors(problem: MergeProblem) -> list[TaskVector]:
    """Returns the task vector of each model.

    Raises:
        MergeError: The problem has no base.
    """
    base = _base_tensors(problem)
    return [
        {name: model[name].detach().to(value) - value for name, value in base.items()}
        for model in problem.models
    ]


def add_to_base(problem: MergeProblem, change: TaskVector, scale: float) -> MergeResult:
    """Returns the base plus a multiple of a change; what is not learned is averaged.

    Raises:
        MergeError: The problem has no base, or the scale is not finite.
    """
    if not abs(scale) < float("inf"):
        raise MergeError(f"The scale is {scale}. Give a finite number; 1 adds the change as it is.")
    identities = tuple(problem.group.identity() for _ in problem.models)
    mean = problem.mean(identities)
    state = dict(mean)
    for name, value in _base_tensors(problem).items():
        state[name] = (value + scale * change[name]).to(mean[name])
    return MergeResult.network(with_singular_vectors(state, problem.models[0], mean), identities)


def _base_tensors(problem: MergeProblem) -> dict[str, torch.Tensor]:
    learned = learned_tensors(problem.require_base())
    return {name: value.detach().double() for name, value in learned.items()}
