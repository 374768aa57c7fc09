"""Git Re-Basin (Ainsworth et al. 2023): alignment by matching, without gradients."""

import numpy as np

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.matching.activations import permute_activations
from fleet_tools.baselines.merging.matching.weights import match_activations, match_weights
from fleet_tools.baselines.merging.methods.alternation import alternate
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.group import Permutation
from fleet_tools.baselines.merging.symmetry.table import State


def git_rebasin(problem: MergeProblem, *, by: str = "weights", rounds: int = 20) -> MergeResult:
    """Aligns models by matching, then averages them.

    Of two models, the second one is aligned with the first one; more models are aligned in turn,
    each with the average of the others (MergeMany).

    Args:
        problem: The models; with their activations, if these are matched.
        by: "weights" or "activations".
        rounds: Maximum number of rounds of MergeMany.

    Raises:
        MergeError: `by` is neither, there are no activations to match, or `rounds` is less than 1.
        PermutationError: The activations do not fit the models.
    """
    if by not in ("weights", "activations"):
        raise MergeError(f"Models are matched by {by!r}; known are 'weights' and 'activations'.")
    if by == "activations":
        require_activations(problem)
    permutations = match_models(problem, by, rounds)
    return MergeResult.network(problem.mean(permutations), permutations)


def match_models(
    problem: MergeProblem, by: str = "weights", rounds: int = 20
) -> tuple[Permutation, ...]:
    """Returns the permutations of `git_rebasin`, with the same arguments."""
    generator = np.random.default_rng(problem.seed)

    def permuted_weights(index: int, permutation: Permutation) -> State:
        return problem.symmetry.apply(permutation, problem.models[index])

    def align_weights(index: int, reference: State, before: Permutation) -> Permutation:
        return match_weights(problem.symmetry, reference, problem.models[index], generator, before)

    def permuted_activations(index: int, permutation: Permutation) -> State:
        return permute_activations(problem.group, problem.activations[index], permutation)

    def align_activations(index: int, reference: State, _: Permutation) -> Permutation:
        return match_activations(problem.group, reference, problem.activations[index])

    if by == "weights":
        return alternate(problem, permuted_weights, align_weights, generator, rounds)
    return alternate(problem, permuted_activations, align_activations, generator, rounds)


def require_activations(problem: MergeProblem) -> None:
    """Raises an error if there are no activations to match.

    Raises:
        MergeError: There are none.
    """
    if not problem.activations:
        raise MergeError(
            "The merge problem has no activations to match. Give those of each model, as "
            "`matching.activations.record` returns them, or match by weights."
        )
