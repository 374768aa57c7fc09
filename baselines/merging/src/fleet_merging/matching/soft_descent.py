"""Gradient descent on soft permutations: the inner loop of Algorithm 1 and of Sinkhorn re-basin."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fleet_merging.average import floating_tensors
from fleet_merging.errors import MergeError, require_choice
from fleet_merging.matching.sinkhorn import soften
from fleet_merging.symmetry.group import Permutation
from fleet_merging.symmetry.table import State, Symmetry

Gradient = Callable[[State], State]
"""Returns the gradient of a loss with respect to a permuted model; missing entries are zero."""

Steps = Generator[State, State, dict[str, torch.Tensor]]
"""Yields permuted models, receives their gradients, and returns tensors by free name."""


@dataclass(frozen=True)
class Descent:
    """Parameters of the descent of soft permutations.

    With projection "through", as in published implementations, scores X are free variables. The
    permutation is P = Proj_tau(X), and AdamW descends through the projection; this works best. With
    "after", Algorithm 1 to the letter, P moves against its own gradient and is projected again, P
    := Proj_tau(P - rate dL/dP). With tau = 1 each projection makes P nearly uniform, even with zero
    gradient.

    Attributes:
        steps: Number of gradient steps.
        rate: Step size.
        tau: Weight of the entropy in the soft projection.
        noise: Standard deviation of the noise added to the start, to break ties.
        projection: "through" or "after", see above.

    Raises:
        MergeError: A number is out of range, or `projection` is neither.
    """

    steps: int = 100
    rate: float = 0.1
    tau: float = 1.0
    noise: float = 0.1
    projection: str = "through"

    def __post_init__(self) -> None:
        """Checks the values."""
        require_choice("The projection", self.projection, ("through", "after"))
        if not (self.rate > 0 and self.tau > 0) or self.steps < 0 or self.noise < 0:
            raise MergeError(
                f"{self} has a number out of range: rate and tau must be positive, steps and noise "
                "at least 0."
            )


def descend(
    symmetry: Symmetry,
    model: State,
    start: Permutation,
    gradient: Gradient,
    descent: Descent,
    generator: np.random.Generator,
    trust: float | None = None,
) -> dict[str, torch.Tensor]:
    """Descends from a permutation to soft ones with a lower loss of the permuted model.

    The gradient is called once a step with the permuted model, detached. The generator draws the
    noise of the start, a hard or soft element.

    `trust` is the weight, between 0 and 1, of a hard start's entries in the first soft projection,
    so that the descent begins near the start. If None, the start's matrix itself is projected. With
    tau = 1 its entries then have the weight e / (n - 1 + e): 2% for n = 128. It has no effect on
    "after", since the first gradient is at the start. A soft start is its own projection for any
    trust.
    """
    steps = descent_steps(symmetry, model, start, descent, generator, trust)
    return descend_together({0: steps}, lambda permuted: [gradient(permuted[0])])[0]


def descend_together(
    descents: Mapping[int, Steps], gradients: Callable[[Mapping[int, State]], Sequence[State]]
) -> dict[int, dict[str, torch.Tensor]]:
    """Descends with several models step by step, with all gradients of a step in one query.

    `gradients` returns the `Gradient` of each permuted model, in their order. The result has each
    soft element.
    """
    found: dict[int, dict[str, torch.Tensor]] = {}
    sent: dict[int, Any] = dict.fromkeys(descents)  # None begins
    while sent:
        permuted: dict[int, State] = {}
        for index, gradient in sent.items():
            try:
                permuted[index] = descents[index].send(gradient)
            except StopIteration as end:
                found[index] = end.value
        sent = dict(zip(permuted, gradients(permuted), strict=True)) if permuted else {}
    return {index: found[index] for index in descents}


def descent_steps(
    symmetry: Symmetry,
    model: State,
    start: Permutation,
    descent: Descent,
    generator: np.random.Generator,
    trust: float | None = None,
) -> Steps:
    """Returns the descent of one model, with the arguments of `descend`."""
    if trust is not None and not 0 < trust < 1:
        raise MergeError(f"The trust is {trust}. Give a number between 0 and 1, or None.")
    reference = next(iter(floating_tensors(model).values()))
    # In half precision, sums would not be 1.
    dtype = torch.promote_types(reference.dtype, torch.float32)
    scores: dict[str, torch.Tensor] = {}
    group = symmetry.group(model)
    given = group.tensors(start)
    for name, matrix in group.matrices(start).items():
        noise = generator.normal(0.0, descent.noise, tuple(matrix.shape)) if descent.noise else 0.0
        if descent.projection == "through":
            if given[name].is_floating_point():
                matrix = descent.tau * matrix.clamp(min=torch.finfo(matrix.dtype).tiny).log()
            elif trust is not None:
                odds = trust / (1 - trust) * max(matrix.shape[-1] - 1, 1)
                matrix = matrix * (descent.tau * np.log(odds))
        noisy = matrix.detach().cpu() + torch.as_tensor(noise)
        scores[name] = noisy.to(dtype=dtype, device=reference.device)
    if not scores:
        return scores
    steps = _descend_through if descent.projection == "through" else _descend_after
    return (yield from steps(symmetry, model, scores, descent))


def _descend_through(
    symmetry: Symmetry, model: State, scores: dict[str, torch.Tensor], descent: Descent
) -> Steps:
    scores = {name: value.requires_grad_() for name, value in scores.items()}
    optimizer = torch.optim.AdamW(list(scores.values()), lr=descent.rate)
    for _ in range(descent.steps):
        with torch.enable_grad():
            soft = soften(scores, descent.tau)
            permuted = symmetry.apply(soft, model)
        gradients = yield from _gradients(permuted, scores)
        for name, value in scores.items():
            value.grad = gradients[name]
        optimizer.step()
    with torch.no_grad():
        return soften(scores, descent.tau)


def _descend_after(
    symmetry: Symmetry, model: State, soft: dict[str, torch.Tensor], descent: Descent
) -> Steps:
    for _ in range(descent.steps):
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in soft.items()}
            permuted = symmetry.apply(leaves, model)
        gradients = yield from _gradients(permuted, leaves)
        moved = {name: value - descent.rate * gradients[name] for name, value in soft.items()}
        soft = soften(moved, descent.tau)
    return soft


def _gradients(permuted: State, leaves: State) -> Steps:
    """Asks for the gradient of a permuted model, and returns its leaves' gradient."""
    outer = yield {name: tensor.detach() for name, tensor in permuted.items()}
    names = [name for name in outer if permuted[name].requires_grad]
    if not names:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    gradients = torch.autograd.grad(
        [permuted[name] for name in names],
        list(leaves.values()),
        [outer[name].to(permuted[name].device) for name in names],
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(leaves, gradients, strict=True))
