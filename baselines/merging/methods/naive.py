"""Averages of models without alignment."""

from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult


def naive_average(problem: MergeProblem) -> MergeResult:
    """Returns the weighted mean of models whose units need not correspond."""
    identities = tuple(problem.group.identity() for _ in problem.models)
    return MergeResult.network(problem.mean(identities), identities)


def common_init(problem: MergeProblem) -> MergeResult:
    """Returns the weighted mean of models that the caller trained from one initialization.

    A control experiment: the arithmetic is that of `naive_average`, only the models differ. Where
    it performs as well as a method, that method's permutations are not needed.
    """
    return naive_average(problem)
