"""Methods with gradients of data holders: Fisher merging, and plain descent as a control."""

from collections.abc import Sequence

import numpy as np
import torch

from fleet_merging.average import average, flatten, floating_tensors
from fleet_merging.buffers import learned_tensors
from fleet_merging.errors import MergeError, require_choice
from fleet_merging.methods.compression import STARTS, first_network
from fleet_merging.methods.facts import method
from fleet_merging.methods.rebasin import match_models
from fleet_merging.methods.seeded_draws import DrawnGradients, content_order, reordered
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.table import State

ALIGNMENTS = ("none", "weights")
_FLOOR = 1e-6
"""Smallest F, as a fraction of the mean over all models and parameters: parameters without effect
on any loss are averaged."""


@method(
    "fisher",
    "Fisher merging",
    source="Matena and Raffel 2022",
    needs=("data_holders",),
    start="common",
    asks="gradients, samples",
)
def fisher(problem: MergeProblem, *, samples: int = 100, align: str = "none") -> MergeResult:
    """Averages models with weights that are diagonals of their Fisher information.

    Matena and Raffel, "Merging Models with Fisher-Weighted Averaging", 2022: the mode of the
    product of Gaussian posteriors, theta = sum_i w_i F_i theta_i / sum_i w_i F_i by parameter.

    F_i is estimated from data holders' answers: the mean of the squared gradients of `samples`
    batches, each drawn by the holder. It is the empirical Fisher, with the data's own targets
    instead of targets drawn from the model, also for squared errors.

    For batches of B independent samples, it is the variance of a sample's gradient divided by B,
    plus the square of its mean. After training the mean is about zero: these F_i are then in
    proportion to single samples' if all holders have the same B. A holder that squared gradients
    itself would send one message instead of `samples`.

    The result does not depend on the order of the models.

    Args:
        problem: The models and their data holders.
        samples: Number of gradients of each holder.
        align: "none", for models of a common start. "weights": models are first matched as by
            `git_rebasin`, and queries are about the permuted models.

    Raises:
        MergeError: An option is unknown or out of range, or there are no data holders.
        MessageError: A data holder's answer is invalid.
    """
    require_choice("The alignment", align, ALIGNMENTS)
    if samples < 1:
        raise MergeError(f"Fisher merging has {samples} samples. Give at least one.")
    order = content_order(problem.models)
    problem = reordered(problem, order)
    gradients = DrawnGradients(problem)
    permutations = [problem.group.identity() for _ in problem.models]
    if align == "weights":
        permutations = list(match_models(problem))
    models = problem.permuted(permutations)
    diagonals = _diagonals(gradients, models, samples)
    weights = problem.normalized_weights.tolist()
    return MergeResult.network(
        _weighted_average(models, diagonals, weights),
        tuple(permutations[position] for position in np.argsort(order)),
        gradients.meter.traffic,
    )


def _diagonals(
    gradients: DrawnGradients, models: Sequence[State], samples: int
) -> list[dict[str, torch.Tensor]]:
    squares = [
        {
            name: torch.zeros_like(tensor, dtype=torch.float64)
            for name, tensor in floating_tensors(model).items()
        }
        for model in models
    ]
    for number in range(samples):
        for index, gradient in gradients.ask(dict(enumerate(models)), number):
            for name, value in gradient.items():
                squares[index][name] += value.square() / samples
    return squares


def _weighted_average(
    models: Sequence[State], diagonals: Sequence[State], weights: Sequence[float]
) -> dict[str, torch.Tensor]:
    state = average(models, weights)
    means = (float(flatten(each).mean()) for each in diagonals)
    # Without any gradient, all weights are equal.
    lowest = _FLOOR * sum(w * mean for w, mean in zip(weights, means, strict=True)) or 1.0
    for name, tensor in floating_tensors(state).items():
        total, mass = torch.zeros_like(tensor, dtype=torch.float64), 0.0
        for model, diagonal, weight in zip(models, diagonals, weights, strict=True):
            share = weight * diagonal[name].clamp(min=lowest).to(total.device)
            total, mass = total + share * model[name].to(total), mass + share
        state[name] = (total / mass).to(tensor)
    return state


@method(
    "fed_sgd",
    "FedSGD from the average",
    source="McMahan et al. 2017",
    needs=("data_holders",),
    asks="gradients, steps",
)
def fed_sgd(
    problem: MergeProblem,
    *,
    steps: int = 300,
    rate: float = 3e-3,
    participants: int | None = None,
    start: str = "average",
) -> MergeResult:
    """Descends from the average of the models on the weighted mean of the data holders' losses.

    From the average it is a control, and no merge: the robots' data train one network through
    gradients. From the result of `structured_compression`, it is that network's fine-tuning, which
    needs a smaller rate. FedSGD of McMahan et al., "Communication-Efficient Learning of Deep
    Networks from Decentralized Data", 2017, section 2, with Adam at the server (Reddi et al.,
    "Adaptive Federated Optimization", 2021). Its rate falls to zero along a cosine.

    Each step asks every participant for one gradient. `fleet_merge` asks every robot for epochs x
    steps gradients, 3 x 100 by default, in messages of the same size. So 300 steps here, with as
    many `participants`, have exactly the same traffic.

    The result does not depend on the order of the models.

    Args:
        problem: The models and their data holders. Models of averaging weight 0 do not count.
        steps: Number of steps; 0 returns the average.
        rate: Learning rate of the first step. A control needs the best of several. For fleets of
            five MLPs 3 x 128 on digits, 0.01 had the lowest cross entropy in three of four. In
            another one, 0.003 had far lower squared errors.
        participants: Number of data holders, drawn anew for each step, that are asked; all if None.
        start: "average", or "structured_compression" with its default options.

    Raises:
        MergeError: An option is unknown or out of range, or there are no data holders; or see
            `structured_compression`.
        MessageError: A data holder's answer is invalid; if it is not finite, give a smaller rate.
    """
    problem = reordered(problem, content_order(problem.models))
    weights = problem.normalized_weights
    members = np.flatnonzero(weights)
    _require_usable(steps, rate, participants, len(members), start)
    gradients = DrawnGradients(problem)
    first = first_network(problem, start)
    state = first.state
    identities = tuple(problem.group.identity() for _ in problem.models)
    # Copies, as the result of `structured_compression` shares tensors with the models. In float64,
    # since half precision loses small steps.
    parameters = {
        name: tensor.detach().to(torch.float64, copy=True)
        for name, tensor in learned_tensors(state).items()
    }
    optimizer = torch.optim.Adam(parameters.values(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    for step in range(steps):
        drawn = np.random.default_rng((problem.seed, step)).permutation(members)[:participants]
        optimizer.zero_grad()
        for index, gradient in gradients.ask(dict.fromkeys(sorted(drawn.tolist()), state), step):
            share = weights[index] / weights[drawn].sum()
            for name, value in gradient.items():
                if (parameter := parameters.get(name)) is not None:
                    term = share * value
                    parameter.grad = term if parameter.grad is None else parameter.grad + term
        optimizer.step()
        schedule.step()
        state |= {name: value.to(state[name].dtype) for name, value in parameters.items()}
    return MergeResult.network(state, identities, first.traffic + gradients.meter.traffic)


def _require_usable(
    steps: int, rate: float, participants: int | None, members: int, start: str
) -> None:
    require_choice("The start", start, STARTS)
    if steps < 0 or not 0 < rate < float("inf"):
        raise MergeError(
            f"FedSGD has {steps} steps and the rate {rate}. Give at least 0 steps, and a rate "
            "above 0."
        )
    if participants is not None and not 1 <= participants <= members:
        raise MergeError(
            f"{participants} of {members} models with averaging weight take part. Give 1 to "
            f"{members}, or None."
        )
