"""Git Re-Basin (Ainsworth et al. 2023): alignment by matching, without gradients."""

from collections.abc import Sequence

import numpy as np
import torch

from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.matching.weights import match_activations, match_weights
from fleet_tools.baselines.merging.methods.alternation import alternate, weights_without
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.group import Permutation


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
    return MergeResult(problem.mean(permutations), permutations)


def match_models(
    problem: MergeProblem, by: str = "weights", rounds: int = 20
) -> tuple[Permutation, ...]:
    """Returns the permutations of `git_rebasin`, with the same arguments."""
    generator = np.random.default_rng(problem.seed)

    def align_weights(index: int, permutations: Sequence[Permutation]) -> Permutation:
        reference = average(problem.permuted(permutations), weights_without(problem, index))
        return match_weights(
            problem.symmetry, reference, problem.models[index], generator, permutations[index]
        )

    def align_activations(index: int, permutations: Sequence[Permutation]) -> Permutation:
        weights = weights_without(problem, index).tolist()
        reference = {}
        for name in problem.activations[index]:
            permuted = _permuted_activations(problem, name, permutations)
            terms = (
                weight * each for weight, each in zip(weights, permuted, strict=True) if weight
            )
            reference[name] = sum(terms, start=torch.zeros(()))
        return match_activations(problem.group, reference, problem.activations[index])

    align = align_weights if by == "weights" else align_activations
    return alternate(problem, align, generator, rounds)


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


def _permuted_activations(
    problem: MergeProblem, name: str, permutations: Sequence[Permutation]
) -> list[torch.Tensor]:
    owner = problem.group.owners.get(name)
    permuted = []
    for activations, permutation in zip(problem.activations, permutations, strict=True):
        index = torch.as_tensor(permutation[name], device=activations[name].device)
        if owner is None:
            permuted.append(activations[name][:, index])
        else:
            order = torch.as_tensor(permutation[owner], device=index.device)
            groups = activations[name][:, order]
            permuted.append(groups.gather(2, index.expand(len(groups), *index.shape)))
    return permuted
