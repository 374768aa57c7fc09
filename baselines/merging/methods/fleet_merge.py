"""Fleet-Merge: Algorithm 1 of the paper, with its ablations."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.matching.sinkhorn import harden
from fleet_tools.baselines.merging.matching.soft_descent import Descent, descend
from fleet_tools.baselines.merging.methods.git_rebasin import match_fleet, require_activations
from fleet_tools.baselines.merging.methods.sinkhorn_rebasin import require_start
from fleet_tools.baselines.merging.problem import Fleet, Merged
from fleet_tools.baselines.merging.queries.data_holder import Traffic, ask
from fleet_tools.baselines.merging.symmetry.group import Permutation
from fleet_tools.baselines.merging.symmetry.table import State

POINTS = ("interpolation", "simplex", "average")


def fleet_merge(
    fleet: Fleet,
    *,
    epochs: int = 3,
    descent: Descent | None = None,
    participants: int | None = None,
    start: str = "matching",
    trust: float = 0.9,
    point: str = "interpolation",
    soft: bool = False,
    monotone: bool = False,
) -> Merged:
    """Aligns all models with their average, each by the loss on its own robot's data.

    The result does not depend on the order of the models: what is drawn is drawn in an order of
    their contents.

    Args:
        fleet: The models and their robots.
        epochs: E; after each the average is made anew.
        descent: T steps of how; S in the algorithm's list of parameters.
        participants: How many models, drawn anew in each epoch, move in it; all if None.
        start: "matching" of weights (MergeMany), "activations", matched likewise, or "identity", as
            in the paper.
        trust: The weight of each unit's match in a descent's first projection; ignored where the
            start is the identity. A descent leaves its start only if rate times steps exceeds
            tau log(n trust / (1 - trust)): 8.4 for n = 512 units.
        point: Where gradients are taken: "interpolation", at a random point between the permuted
            model and the average; "simplex" (the paper's fleet-merge-simplex), at a random point
            among all the models; "average" (fleet-merge-average), at their average.
        soft: Averages softly permuted models (fleet-merge-soft), and returns such an average.
        monotone: Beyond the paper: a new permutation is kept only if it lowers the loss of the
            average on all robots' data (each says its own loss), so that the result is no worse
            by that measure than the start.

    Raises:
        FleetError: `start` or `point` is unknown, `trust` is not between 0 and 1, there are no
            robots or epochs, or there are not as many models as are to take part.
        MessageError: A robot answers what it was not asked.
    """
    _require_usable(fleet, epochs, participants, start, point)
    descent = descent or Descent()
    order = _order(fleet.models)
    ours = _reordered(fleet, order)
    group, count = ours.group, len(ours.models)
    # Line 3: initialize.
    permutations = _start(ours, start)
    traffic = Traffic()
    if monotone:
        lowest, traffic = _pooled_loss(ours, ours.mean(permutations))
    for epoch in range(epochs):
        permuted = ours.permuted(permutations)
        mean = average(permuted, ours.weights)  # line 5
        moving = np.random.default_rng((ours.seed, epoch)).permutation(count)  # line 6
        for at in moving[:participants].tolist():
            generator = np.random.default_rng((ours.seed, epoch, at))

            def gradient(own, at=at, generator=generator, permuted=permuted, mean=mean):
                nonlocal traffic
                share, others, weights = _rest(ours, at, point, permuted, mean, generator)
                model = average([own, *others], [share, *weights])  # line 9
                seed = int(generator.integers(2**31))
                answer, crossed = ask(ours.robots[at], model, seed)
                traffic += crossed
                return {name: share * value for name, value in answer.gradient.items()}

            # Lines 8 to 11, from the hard permutation (section 3.1 says so; the listing does not).
            found = descend(
                ours.symmetry,
                ours.models[at],
                permutations[at],
                gradient,
                descent,
                generator,
                None if start == "identity" else trust,
            )
            found = found if soft else harden(group, found)  # line 12
            if monotone:
                trial = ours.mean([*permutations[:at], found, *permutations[at + 1 :]])
                loss, crossed = _pooled_loss(ours, trial)
                traffic += crossed
                if not loss < lowest:
                    continue
                lowest = loss
            permutations[at] = found
            # The mean stays until the next epoch; the ablations' points are among models as they
            # now are, lest two that move at once only change places.
            permuted[at] = ours.symmetry.apply(permutations[at], ours.models[at])
    state = ours.mean(permutations)  # line 13
    places = np.argsort(order)
    return Merged(state, tuple(permutations[place] for place in places), traffic)


def _start(fleet: Fleet, start: str) -> list[Permutation]:
    if start == "identity":
        return [fleet.group.identity() for _ in fleet.models]
    return list(match_fleet(fleet, "activations" if start == "activations" else "weights"))


def _pooled_loss(fleet: Fleet, model: State) -> tuple[float, Traffic]:
    """The robots' weighted mean loss, each on all of its data."""
    total, traffic = 0.0, Traffic()
    for share, robot in zip(fleet.shares.tolist(), fleet.robots, strict=True):
        answer, crossed = ask(robot, model, None, gradient=False)
        total, traffic = total + share * answer.loss, traffic + crossed
    return total, traffic


def _rest(fleet: Fleet, at: int, point: str, permuted: Sequence[State], mean: State, generator):
    """The share of the moving model in the point, and the other models there with their shares."""
    if point == "interpolation":
        share = generator.uniform()
        return share, [mean], [1 - share]
    drawn = point == "simplex"
    shares = generator.dirichlet(np.ones(len(permuted))) if drawn else fleet.shares
    others = [j for j in range(len(permuted)) if j != at]
    return shares[at], [permuted[j] for j in others], [shares[j] for j in others]


def _order(models: Sequence[State]) -> list[int]:
    """Indices in an order that only the models' contents decide."""
    return sorted(range(len(models)), key=lambda at: _digest(models[at]))


def _digest(model: State) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(model):
        tensor = model[name].detach().cpu().contiguous().reshape(-1)
        digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _reordered(fleet: Fleet, order: Sequence[int]) -> Fleet:
    def chosen(values):
        return tuple(values[at] for at in order)

    return replace(
        fleet,
        models=chosen(fleet.models),
        weights=None if fleet.weights is None else chosen(fleet.weights),
        robots=chosen(fleet.robots),
        activations=chosen(fleet.activations) if fleet.activations else (),
    )


def _require_usable(fleet, epochs, participants, start, point) -> None:
    if start == "activations":
        require_activations(fleet)
    else:
        require_start(start)
    if point not in POINTS:
        raise FleetError(f"Gradients are taken at {point!r}; known are {', '.join(POINTS)}.")
    if not fleet.robots:
        raise FleetError(
            "The fleet has no robots to ask for gradients on their own data. Give one for each "
            "model (`robots.LocalRobot`), or use git_rebasin, which needs none."
        )
    if epochs < 1:
        raise FleetError(f"Fleet-Merge has {epochs} epochs. Give at least one.")
    count = len(fleet.models)
    if participants is not None and not 1 <= participants <= count:
        raise FleetError(f"{participants} of {count} models take part. Give 1 to {count}, or None.")
