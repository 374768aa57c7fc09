"""Fleet-Merge: Algorithm 1 of the paper, with its ablations."""

import math
from collections.abc import Sequence

import numpy as np

from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.matching.sinkhorn import harden
from fleet_tools.baselines.merging.matching.soft_descent import Descent, Gradient, descend
from fleet_tools.baselines.merging.methods.content_order import content_order, reordered
from fleet_tools.baselines.merging.methods.git_rebasin import match_models, require_activations
from fleet_tools.baselines.merging.methods.sinkhorn_rebasin import require_start
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import TrafficMeter
from fleet_tools.baselines.merging.symmetry.group import Permutation
from fleet_tools.baselines.merging.symmetry.table import State

POINTS = ("interpolation", "simplex", "average")


def fleet_merge(
    problem: MergeProblem,
    *,
    epochs: int = 3,
    descent: Descent | None = None,
    participants: int | None = None,
    start: str = "matching",
    trust: float = 0.9,
    point: str = "interpolation",
    soft: bool = False,
    monotone: bool = False,
) -> MergeResult:
    """Aligns all models with their average, each by the loss on its own data.

    The result does not depend on the order of the models: random numbers are drawn in an order of
    their contents.

    Args:
        problem: The models and their data holders.
        epochs: Number of epochs, E; after each the average is computed again.
        descent: Parameters of the descent of T steps; S in the algorithm's list of parameters;
            defaults if None.
        participants: Number of models, drawn anew in each epoch, that move in it; all if None.
        start: "matching" of weights (MergeMany), "activations", which are matched likewise, or
            "identity", as in the paper.
        trust: Weight of each unit's match in a descent's first projection; unused from the
            identity. A descent leaves its start only if rate times steps exceeds
            tau log(n trust / (1 - trust)): 8.4 for n = 512 units.
        point: Model at which gradients are computed: "interpolation", a random point between the
            permuted model and the average; "simplex" (the paper's fleet-merge-simplex), a random
            point among all models; "average" (fleet-merge-average), their average.
        soft: Average softly permuted models (fleet-merge-soft), and return that average.
        monotone: Not in the paper: accept a new permutation only if it lowers the loss of the
            average on the data of all data holders (each answers with its own loss), so that by
            this measure the result is no worse than the start.

    Raises:
        MergeError: `start` or `point` is unknown, `trust` is not between 0 and 1, there are no
            data holders, `epochs` is less than 1, or there are fewer models than participants.
        MessageError: A data holder's answer is invalid.
    """
    _require_usable(problem, epochs, participants, start, point)
    descent = descent or Descent()
    order = content_order(problem.models)
    problem = reordered(problem, order)
    count, meter = len(problem.models), TrafficMeter()
    # Line 3: initialize.
    permutations = _initial_permutations(problem, start)
    lowest = _pooled_loss(problem, problem.mean(permutations), meter) if monotone else math.inf
    for epoch in range(epochs):
        permuted = problem.permuted(permutations)
        mean = average(permuted, problem.averaging_weights)  # line 5
        moving = np.random.default_rng((problem.seed, epoch)).permutation(count)  # line 6
        for index in moving[:participants].tolist():
            generator = np.random.default_rng((problem.seed, epoch, index))
            # Lines 8 to 11, from the hard permutation (section 3.1 says so; the listing does not).
            found: Permutation = descend(
                problem.symmetry,
                problem.models[index],
                permutations[index],
                _gradient(problem, index, point, permuted, mean, generator, meter),
                descent,
                generator,
                None if start == "identity" else trust,
            )
            found = found if soft else harden(problem.group, found)  # line 12
            if monotone:
                trial = problem.mean([*permutations[:index], found, *permutations[index + 1 :]])
                loss = _pooled_loss(problem, trial, meter)
                if not loss < lowest:
                    continue
                lowest = loss
            permutations[index] = found
            # The mean stays until the next epoch; the points of the ablations are among the models
            # as permuted now, or else two models that move at once would only swap.
            permuted[index] = problem.symmetry.apply(found, problem.models[index])
    state = problem.mean(permutations)  # line 13
    positions = np.argsort(order)
    return MergeResult(
        state, tuple(permutations[position] for position in positions), meter.traffic
    )


def _initial_permutations(problem: MergeProblem, start: str) -> list[Permutation]:
    if start == "identity":
        return [problem.group.identity() for _ in problem.models]
    return list(match_models(problem, "activations" if start == "activations" else "weights"))


def _pooled_loss(problem: MergeProblem, model: State, meter: TrafficMeter) -> float:
    """Returns the weighted mean loss of the data holders, each on all of its data."""
    weights = problem.normalized_weights.tolist()
    return sum(
        weight * meter.ask(data_holder, model, None, gradient=False).loss
        for weight, data_holder in zip(weights, problem.data_holders, strict=True)
    )


def _gradient(
    problem: MergeProblem,
    index: int,
    point: str,
    permuted: Sequence[State],
    mean: State,
    generator: np.random.Generator,
    meter: TrafficMeter,
) -> Gradient:
    """Returns the gradient of a model's own loss with respect to the permuted model.

    Args:
        problem: The models.
        index: Index of the moving model.
        point: See `fleet_merge`.
        permuted: All permuted models.
        mean: The average at the beginning of the epoch.
        generator: Draws points and the data holder's seeds.
        meter: Counts the traffic.
    """

    def gradient(moving: State) -> State:
        if point == "interpolation":
            coefficient = generator.uniform()
            others, other_coefficients = [mean], [1 - coefficient]
        else:
            drawn = point == "simplex"
            coefficients = (
                generator.dirichlet(np.ones(len(permuted))) if drawn else problem.normalized_weights
            ).tolist()
            coefficient = coefficients.pop(index)
            others = [*permuted[:index], *permuted[index + 1 :]]
            other_coefficients = coefficients
        model = average([moving, *others], [coefficient, *other_coefficients])  # line 9
        seed = int(generator.integers(2**31))
        answer = meter.ask(problem.data_holders[index], model, seed)
        return {name: coefficient * value for name, value in answer.gradient.items()}

    return gradient


def _require_usable(
    problem: MergeProblem, epochs: int, participants: int | None, start: str, point: str
) -> None:
    if start == "activations":
        require_activations(problem)
    else:
        require_start(start)
    if point not in POINTS:
        raise MergeError(f"The point is {point!r}; known are {', '.join(POINTS)}.")
    if not problem.data_holders:
        raise MergeError(
            "The merge problem has no data holders to answer with gradients on their own data. "
            "Give one for each model (`queries.data_holder.LocalDataHolder`), or use git_rebasin, "
            "which needs none."
        )
    if epochs < 1:
        raise MergeError(f"Fleet-Merge has {epochs} epochs. Give at least one.")
    count = len(problem.models)
    if participants is not None and not 1 <= participants <= count:
        raise MergeError(f"{participants} of {count} models take part. Give 1 to {count}, or None.")
