"""Gradient descent on soft permutations: the inner loop of Algorithm 1 and of Sinkhorn re-basin."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.merging.average import floating
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.matching.sinkhorn import soften
from fleet_tools.baselines.merging.symmetry.group import Permutation
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

Gradient = Callable[[State], State]
"""The gradient of what is to be low, with respect to a softly permuted model; zero where absent."""


@dataclass(frozen=True)
class Descent:
    """How soft permutations descend.

    `through` is what published implementations do and what works: scores X are free variables,
    the permutation is P = Proj_tau(X), and AdamW follows the loss through the projection. `after`
    is Algorithm 1 to the letter: P moves against its own gradient and is projected again,
    P := Proj_tau(P - rate dL/dP); with tau = 1 each projection makes P nearly uniform.

    Args:
        steps: Of gradient.
        rate: Step size.
        tau: Weight of the entropy in the soft projection.
        noise: Standard deviation of what is added to the start, so that no entry is like another.
        iterations: Of Sinkhorn, at most, in each projection.
        projection: "through" or "after", as above.

    Raises:
        FleetError: A number is out of range, or `projection` is neither.
    """

    steps: int = 100
    rate: float = 0.1
    tau: float = 1.0
    noise: float = 0.1
    iterations: int = 20
    projection: str = "through"

    def __post_init__(self) -> None:
        if self.projection not in ("through", "after"):
            raise FleetError(
                f"A descent projects {self.projection!r}; known are 'through' and 'after'."
            )
        positive = self.rate > 0 and self.tau > 0 and self.iterations >= 1
        if not positive or self.steps < 0 or self.noise < 0:
            raise FleetError(
                f"{self} has a number out of range: rate, tau and iterations are positive, steps "
                "and noise not negative."
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
    """Moves a soft permutation so that a loss of the permuted model falls.

    Args:
        symmetry: The model's table.
        model: What is permuted; it stays.
        start: Hard or soft.
        gradient: Called once a step with the permuted model, detached.
        descent: How.
        generator: Draws the noise of the start.
        trust: The weight, between 0 and 1, of a hard start's entries in the first soft projection,
            so that it begins near the start: entries 1 alone weigh e / (n - 1 + e) with tau = 1.
            Where None, and "after", the start itself is what is projected.

    Returns:
        The soft element, matrices by name.

    Raises:
        FleetError: The trust is out of range.
    """
    if trust is not None and not 0 < trust < 1:
        raise FleetError(
            f"The start has the trust {trust}. Give a number between 0 and 1, or None."
        )
    reference = next(iter(floating(model).values()))
    # Half precisions are too coarse for sums to be 1.
    kind = {"dtype": torch.promote_types(reference.dtype, torch.float32)}
    kind["device"] = reference.device
    scores = {}
    for name, matrix in symmetry.group(model).matrices(start).items():
        noise = generator.normal(0.0, descent.noise, tuple(matrix.shape)) if descent.noise else 0.0
        if trust is not None and descent.projection == "through":
            odds = trust / (1 - trust) * max(matrix.shape[-1] - 1, 1)
            matrix = matrix * (descent.tau * np.log(odds))
        scores[name] = (matrix.detach().cpu() + torch.as_tensor(noise)).to(**kind)
    if not scores:
        return scores
    if descent.projection == "through":
        return _descend_through(symmetry, model, scores, gradient, descent)
    return _descend_after(symmetry, model, scores, gradient, descent)


def _descend_through(symmetry, model, scores, gradient, descent) -> dict[str, torch.Tensor]:
    scores = {name: value.requires_grad_() for name, value in scores.items()}
    optimizer = torch.optim.AdamW(list(scores.values()), lr=descent.rate)
    for _ in range(descent.steps):
        with torch.enable_grad():
            soft = soften(scores, descent.tau, descent.iterations)
            pulled = _pull_back(symmetry.apply(soft, model), gradient, scores)
        for name, value in scores.items():
            value.grad = pulled[name]
        optimizer.step()
    with torch.no_grad():
        return soften(scores, descent.tau, descent.iterations)


def _descend_after(symmetry, model, soft, gradient, descent) -> dict[str, torch.Tensor]:
    for _ in range(descent.steps):
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in soft.items()}
            pulled = _pull_back(symmetry.apply(leaves, model), gradient, leaves)
        moved = {name: value - descent.rate * pulled[name] for name, value in soft.items()}
        soft = soften(moved, descent.tau, descent.iterations)
    return soft


def _pull_back(permuted: State, gradient: Gradient, leaves: State) -> dict[str, torch.Tensor]:
    told = gradient({name: tensor.detach() for name, tensor in permuted.items()})
    reached = [name for name in told if permuted[name].requires_grad]
    if not reached:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    pulled = torch.autograd.grad(
        [permuted[name] for name in reached],
        list(leaves.values()),
        [told[name].to(permuted[name].device) for name in reached],
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(leaves, pulled, strict=True))
