"""Fisher merging: each parameter is averaged with the models' certainty about it as weights."""

from collections.abc import Sequence

import numpy as np
import torch

from fleet_tools.baselines.merging.average import average, flatten, floating_tensors
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.content_order import content_order, reordered
from fleet_tools.baselines.merging.methods.git_rebasin import match_models
from fleet_tools.baselines.merging.methods.gradients import DrawnGradients
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.table import State

ALIGNMENTS = ("none", "weights")


def fisher(
    problem: MergeProblem, *, samples: int = 100, floor: float = 1e-6, align: str = "none"
) -> MergeResult:
    """Averages models with weights that are diagonals of their Fisher information.

    Matena and Raffel, "Merging Models with Fisher-Weighted Averaging", 2022: the mode of the
    product of Gaussian posteriors, theta = sum_i w_i F_i theta_i / sum_i w_i F_i by parameter.

    F_i is estimated from what data holders answer: the mean of the squared gradients of `samples`
    batches, each drawn by the holder. It is the empirical Fisher, with the data's own targets
    instead of targets drawn from the model; for a squared error, too, where each gradient is in
    proportion to the error. And it is that of batches, not of single samples: for batches of B
    independent samples, the variance of a sample's gradient divided by B, plus the square of its
    mean. Where the mean is zero, as after training, these F_i are in proportion to those of single
    samples if all holders have the same B. A holder that squared gradients itself would send one
    message instead of `samples`.

    The result does not depend on the order of the models.

    Args:
        problem: The models and their data holders.
        samples: Number of gradients of each holder.
        floor: Smallest F, as a fraction of the mean over all models and parameters: parameters
            which no loss depends on are averaged.
        align: "none", for models of a common start, or "weights": models are matched as by
            `git_rebasin` at first, and asked about as permuted.

    Raises:
        MergeError: `align` is unknown, there are no data holders, `samples` is less than 1, or
            `floor` is not above 0.
        MessageError: A data holder's answer is invalid.
    """
    if align not in ALIGNMENTS:
        raise MergeError(f"Models are aligned by {align!r}; known are {', '.join(ALIGNMENTS)}.")
    if samples < 1 or not 0 < floor < float("inf"):
        raise MergeError(
            f"Fisher merging has {samples} samples and the floor {floor}. Give at least one "
            "sample, and a floor above 0."
        )
    order = content_order(problem.models)
    problem = reordered(problem, order)
    gradients = DrawnGradients(problem)
    permutations = [problem.group.identity() for _ in problem.models]
    if align == "weights":
        permutations = list(match_models(problem))
    models = problem.permuted(permutations)
    diagonals = [_diagonal(gradients, index, model, samples) for index, model in enumerate(models)]
    weights = problem.normalized_weights.tolist()
    return MergeResult.network(
        _weighted_average(models, diagonals, weights, floor),
        tuple(permutations[position] for position in np.argsort(order)),
        gradients.meter.traffic,
    )


def _diagonal(
    gradients: DrawnGradients, index: int, model: State, samples: int
) -> dict[str, torch.Tensor]:
    squares = {
        name: torch.zeros_like(tensor, dtype=torch.float64)
        for name, tensor in floating_tensors(model).items()
    }
    for number in range(samples):
        for name, value in gradients.ask(index, model, number).items():
            squares[name] += value.square() / samples
    return squares


def _weighted_average(
    models: Sequence[State], diagonals: Sequence[State], weights: Sequence[float], floor: float
) -> dict[str, torch.Tensor]:
    state = average(models, weights)
    means = (float(flatten(each).mean()) for each in diagonals)
    # Without any gradient, all weights are the same.
    lowest = floor * sum(w * mean for w, mean in zip(weights, means, strict=True)) or 1.0
    for name, tensor in floating_tensors(state).items():
        total, mass = torch.zeros_like(tensor, dtype=torch.float64), 0.0
        for model, diagonal, weight in zip(models, diagonals, weights, strict=True):
            share = weight * diagonal[name].clamp(min=lowest).to(total.device)
            total, mass = total + share * model[name].to(total), mass + share
        state[name] = (total / mass).to(tensor)
    return state
