"""Runs of the program that merges files."""

from merging_support import merge_problems

from fleet_tools.baselines import merge
from fleet_tools.baselines.model_files import write_model


def write_two(folder):
    """Writes two models of one function, except for noise and the order of their units."""
    paths = [folder / "a.safetensors", folder / "b.safetensors"]
    for path, state in zip(paths, merge_problems.models(), strict=True):
        write_model(path, state)
    return paths


def run(
    paths,
    *more,
    method="git_rebasin",
    problem: str | None = "with_data",
    model: str | None = None,
    output=None,
):
    output = output or paths[0].with_name("merged.safetensors")
    arguments = [*map(str, paths), "--method", method]
    for option, name in (("--problem", problem), ("--model", model)):
        arguments += [] if name is None else [option, f"merging_support.merge_problems:{name}"]
    return merge.main([*arguments, "--output", str(output), *more]), output
