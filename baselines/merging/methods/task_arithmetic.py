"""Task arithmetic: models differ from a common start by task vectors, which are added."""

from fleet_tools.baselines.merging.average import weighted_sum
from fleet_tools.baselines.merging.methods.task_vectors import add_to_base, task_vectors
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult


def task_arithmetic(problem: MergeProblem, *, scale: float = 1.0) -> MergeResult:
    """Adds a multiple of the weighted mean of the task vectors to the base.

    Ilharco et al., "Editing models with task arithmetic", 2023, add a multiple lambda of the sum of
    n task vectors. Here the multiple is that of their mean, so that it does not depend on n: lambda
    is scale / n, and with scale 1 the result is the average.

    Args:
        problem: The models and their base.
        scale: Multiple of the mean: above 1 beyond the average, 0 the base, below 0 away from what
            the models learned.

    Raises:
        MergeError: There is no base, or `scale` is not finite.
    """
    mean = weighted_sum(task_vectors(problem), problem.normalized_weights.tolist())
    return add_to_base(problem, mean.terms, scale)
