"""Methods on task vectors: the differences of models from their common initial weights.

Task arithmetic adds them, TIES adds entries that agree in sign, DARE drops most entries first.
Methods on their singular vectors are in `spectra`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fleet_merging.average import weighted_sum
from fleet_merging.buffers import learned_tensors
from fleet_merging.errors import MergeError, require_choice
from fleet_merging.methods.facts import BASE, method, required
from fleet_merging.methods.seeded_draws import content_seed, digest
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.table import State

TaskVector = Mapping[str, torch.Tensor]
"""Differences in float64, by the names of a model's learned tensors."""

DENSITY = 0.2
"""Fraction of the entries of a task vector that TIES keeps."""

THEN = ("average", "ties")
"""Methods that may follow `dare`."""


@method("task_arithmetic", "Task arithmetic", source="Ilharco et al. 2023", needs=BASE)
def task_arithmetic(problem: MergeProblem, *, scale: float = 1.0) -> MergeResult:
    """Adds a multiple of the weighted mean of the task vectors to the base.

    Ilharco et al., "Editing models with task arithmetic", 2023, add a multiple lambda of the sum of
    n task vectors. Here it is a multiple of their mean, independent of n: lambda is scale / n. With
    scale 1 the result is the average.

    Args:
        problem: The models and their base.
        scale: Multiple of the mean: 1 the average, above 1 beyond it, 0 the base, below 0 the
            opposite of the training.

    Raises:
        MergeError: There is no base, or `scale` is not finite.
    """
    mean = weighted_sum(task_vectors(problem), problem.normalized_weights.tolist())
    return add_to_base(problem, mean.terms, scale)


@method("ties", "TIES-Merging", source="Yadav et al. 2023", needs=BASE)
def ties(problem: MergeProblem, *, density: float = DENSITY, scale: float = 1.0) -> MergeResult:
    """Trims task vectors, elects the sign of each entry, and averages the entries that agree.

    Yadav et al., "TIES-Merging: Resolving Interference When Merging Models", 2023, Algorithm 1;
    here with averaging weights. The statistics of a BatchNorm are no entries, and are averaged.

    Args:
        problem: The models and their base.
        density: Fraction of each task vector that is kept, the largest entries in magnitude over
            all tensors that it changes; ties at the smallest kept magnitude, too.
        scale: Multiple of the mean of agreeing entries, lambda.

    Raises:
        MergeError: There is no base, `density` is not above 0 and at most 1, or `scale` is not
            finite.
    """
    mean = ties_mean(task_vectors(problem), problem.normalized_weights.tolist(), density)
    return add_to_base(problem, mean, scale)


@method("dare", "DARE", source="Yu et al. 2024", needs=BASE)
def dare(
    problem: MergeProblem,
    *,
    drop: float = 0.9,
    then: str = "average",
    density: float = DENSITY,
    scale: float = 1.0,
) -> MergeResult:
    """Drops each entry of the task vectors with a probability, rescales the others, and merges.

    Yu et al., "Language Models are Super Mario: Absorbing Abilities from Homologous Models as a
    Free Lunch", 2024. Kept entries are divided by 1 - drop, which keeps their expectation.

    The result does not depend on the order of the models. The problem's seed and the contents of
    model and tensor determine the dropped entries, so that tied weights stay tied.

    Args:
        problem: The models and their base.
        drop: Probability of dropping an entry. 0.9 is among the paper's values for large fine-tuned
            models, which have small task vectors. It is high for networks trained from random
            weights.
        then: "average" of the task vectors, as `task_arithmetic`, or "ties".
        density: Fraction that `ties` keeps, of the entries with zeros; unused by "average".
        scale: Multiple of the merged task vector; see `task_arithmetic` and `ties`.

    Raises:
        MergeError: There is no base, `then` is unknown, `drop` is not from 0 to below 1, or see
            `ties`.
    """
    require_choice("The next method", then, THEN)
    if not 0 <= drop < 1:
        raise MergeError(f"The probability to drop is {drop}. Give a number from 0 to below 1.")
    vectors = [
        _thinned(vector, drop, problem.seed, model)
        for vector, model in zip(task_vectors(problem), problem.models, strict=True)
    ]
    weights = problem.normalized_weights.tolist()
    if then == "average":
        return add_to_base(problem, weighted_sum(vectors, weights).terms, scale)
    return add_to_base(problem, ties_mean(vectors, weights, density), scale)


def task_vectors(problem: MergeProblem) -> list[TaskVector]:
    """Returns the task vector of each model."""
    base = _base_tensors(problem)
    return [
        {name: model[name].detach().to(value) - value for name, value in base.items()}
        for model in problem.models
    ]


def add_to_base(problem: MergeProblem, change: TaskVector, scale: float) -> MergeResult:
    """Returns the base plus a multiple of a change; buffers are averaged."""
    require_finite(scale)
    identities = tuple(problem.group.identity() for _ in problem.models)
    state = problem.mean()
    for name, value in _base_tensors(problem).items():
        state[name] = (value + scale * change[name]).to(state[name])
    return MergeResult.network(state, identities)


def require_finite(scale: float) -> None:
    """Raises a `MergeError` unless a multiple of a change is finite."""
    if not abs(scale) < float("inf"):
        raise MergeError(f"The scale is {scale}. Give a finite number; 1 adds the change as it is.")


def ties_mean(
    vectors: Sequence[TaskVector], weights: Sequence[float], density: float
) -> TaskVector:
    """Returns the merged task vector of `ties`, before it is scaled."""
    if not 0 < density <= 1:
        raise MergeError(f"The density is {density}. Give a fraction above 0 and at most 1.")
    trimmed = [_trimmed(vector, density) for vector in vectors]
    return {name: _disjoint_mean([each[name] for each in trimmed], weights) for name in vectors[0]}


def _base_tensors(problem: MergeProblem) -> dict[str, torch.Tensor]:
    learned = learned_tensors(required(problem, "base"))
    return {name: value.detach().double() for name, value in learned.items()}


def _trimmed(vector: TaskVector, density: float) -> TaskVector:
    # Frozen tensors, as of a fine-tuned head, would take the whole fraction.
    changed = [tensor for tensor in vector.values() if tensor.any()]
    if not changed:
        return vector
    sizes = torch.cat([tensor.abs().flatten().cpu() for tensor in changed])
    kept = max(1, round(density * len(sizes)))
    smallest = float(sizes.kthvalue(len(sizes) - kept + 1).values)
    return {name: tensor * (tensor.abs() >= smallest) for name, tensor in vector.items()}


def _disjoint_mean(tensors: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    stacked = torch.stack(list(tensors))
    shares = torch.tensor(weights).to(stacked).reshape(-1, *[1] * tensors[0].dim())
    elected = (shares * stacked).sum(0).sign()
    shares = shares * (stacked.sign() * elected > 0)
    mass = shares.sum(0)
    # Without agreement, all are zero or cancel out: the base stays.
    return (shares * stacked).sum(0) / mass.where(mass > 0, torch.ones_like(mass))


def _thinned(vector: TaskVector, drop: float, seed: int, model: State) -> TaskVector:
    of_model = digest(model)

    def kept(name: str) -> torch.Tensor:
        of_tensor = digest({name: model[name]})
        generator = np.random.default_rng(content_seed(seed, 0, of_model, of_tensor))
        return torch.from_numpy(generator.random(vector[name].shape) >= drop)

    return {
        name: tensor * kept(name).to(tensor.device) / (1 - drop) for name, tensor in vector.items()
    }
