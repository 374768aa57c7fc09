"""Merging methods: pure functions from a `problem.MergeProblem` to a `problem.MergeResult`."""
