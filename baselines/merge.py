"""Merges models: `python -m fleet_tools.baselines.merge A B --method git_rebasin --output MERGED`.

Checkpoints of policies are merged into a checkpoint. For other models, `--spec` names a function
that returns their table of axes (see `merging.spec`), or `--model` one that returns a model, from
which the table is derived. A false table is refused.
"""

import contextlib
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pydantic
from tyro.conf import Positional, UseAppendAction, arg

from fleet_tools.config.values import Count, Number, Seed
from fleet_tools.utils import cli
from fleet_tools.utils.progress import progress_bar

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.merging.queries.data_holder import Traffic
    from fleet_tools.baselines.merging.spec import ModelSpec
    from fleet_tools.baselines.policies.blueprint import Blueprint


def _odd(points: int) -> int:
    if points < 3 or points % 2 == 0:
        raise ValueError("give an odd number, at least 3")
    return points


class MergeOptions(cli.Options):
    """Merges models into one, and measures barriers before and after their alignment.

    Exit codes:
    0: the merged model is stored.
    1: the merged model is not usable and is not stored, or the disk failed.
    2: it cannot begin.
    """

    models: Annotated[
        tuple[Path, ...], Positional, arg(metavar="MODEL ..."), pydantic.Field(min_length=1)
    ]
    """Safetensors files: checkpoints of one kind of policy, or state dicts of other models."""
    method: str
    """Merging method: naive_average, git_rebasin, fleet_merge or another one of
    merging.methods.registry, or module:function for your own, whose code is run."""
    output: Path
    """File of the merged model."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Option of the method or its Descent, such as epochs=5 or steps=60; may be repeated."""
    spec: Annotated[str | None, arg(metavar="MODULE:FUNCTION")] = None
    """Function that returns the table of axes, or a merging.spec.ModelSpec with data; its code is
    run. Checkpoints need none."""
    model: Annotated[str | None, arg(metavar="MODULE:FACTORY")] = None
    """Function that returns a model and an example of its inputs; its code is run. The table of
    --spec is checked by it; without --spec, the table is derived from it."""
    base: Path | None = None
    """File of the weights from which all models were trained, for methods that need them, such as
    task_arithmetic and ties; a checkpoint if the models are checkpoints."""
    overwrite: bool = False
    """Replace an existing output."""
    averaging_weights: tuple[Number, ...] = ()
    """Weight of each model in the average, of any sum (default: equal weights)."""
    seed: Seed = 0
    """Seed of everything that is drawn."""
    points: Annotated[Count, pydantic.AfterValidator(_odd)] = 11
    """Number of points on the line of each barrier: odd, at least 3."""


def _merge(options: MergeOptions) -> int:
    from fleet_tools.baselines.merging.errors import UnsoundMergeError
    from fleet_tools.baselines.merging.methods import registry
    from fleet_tools.baselines.merging.methods.options import read_options
    from fleet_tools.baselines.merging.model_files import read_models, write_model
    from fleet_tools.baselines.merging.report import as_text, measure_merge
    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint

    method_options = read_options(registry.find(options.method), options.option)
    _require_several(options.models)
    inputs = [*options.models, *filter(None, [options.base])]
    _require_writable(options.output, inputs, options.overwrite)
    states, blueprint = read_models(inputs)
    models = states[: len(options.models)]
    with _cautions_on_stderr():
        spec = _find_spec(options.spec, options.model, blueprint)
        if options.base is not None:
            spec = replace(spec, base=states[-1])
        problem = spec.problem(models, options.averaging_weights or None, options.seed)
        checked = spec.check(models[0])
    if checked is None:
        print(
            "Warning: The table was not checked. Name a model by --model MODULE:FACTORY.",
            file=sys.stderr,
        )
    try:
        with progress_bar(2, "stage") as bar:
            bar.set_postfix_str("merging")
            started = time.perf_counter()
            merged = registry.merge(options.method, problem, **method_options)
            seconds = round(time.perf_counter() - started, 3)
            bar.set_postfix_str("measuring barriers", refresh=False)
            bar.update()
            state = spec.finish(merged.state)
            spec.require_sound(state, problem.models[0], options.method)
            loss = spec.pooled_loss(problem)
            report = measure_merge(problem, merged, loss, spec.finish, options.points)
            bar.update()
    except UnsoundMergeError as error:
        print(f"Not stored: {error}", file=sys.stderr)
        return cli.FAILED
    # Of tied weights one name, as in the files.
    state = {name: tensor for name, tensor in state.items() if name in models[0]}
    notes = {
        "method": options.method,
        "options": dict(text.split("=", 1) for text in options.option),
        "models": [path.name for path in options.models],
        "weights": problem.normalized_weights.tolist(),
        "seed": options.seed,
        **({} if options.base is None else {"base": options.base.name}),
    }
    if blueprint is None:
        write_model(options.output, state, notes)
    else:
        save_checkpoint(options.output, Checkpoint(blueprint, state, notes))
    summary = {
        "output": str(options.output),
        "method": options.method,
        "seconds": seconds,
        **asdict(report),
        "traffic": asdict(merged.traffic),
        "check": None if checked is None else asdict(checked),
    }
    options.report(
        summary,
        lambda: (
            f"{options.output}: {len(models)} models by {options.method}, in {seconds:.1f} s\n"
            f"Table: {checked or 'not checked'}\n"
            f"{as_text(report)}{_traffic_text(merged.traffic)}"
        ),
    )
    return cli.OK


def _find_spec(name: str | None, model: str | None, blueprint: "Blueprint | None") -> "ModelSpec":
    """Returns the spec of models: the user's, or that of checkpoints, or a derived one."""
    from fleet_tools.baselines.merging.errors import MergeError
    from fleet_tools.baselines.merging.spec import ModelSpec, load_model, load_spec

    spec = None if name is None else load_spec(name)
    if spec is None and blueprint is not None:
        spec = ModelSpec(blueprint.symmetry())
    if model is not None:
        module, example = load_model(model)
        if spec is None:
            from fleet_tools.baselines.merging.symmetry.derive import derive

            spec = ModelSpec(derive(module, example))
        return replace(spec, model=module, example=example)
    if spec is None:
        raise MergeError(
            "These models are no checkpoints, and have no table of axes. Name a function that "
            "returns a model, --model MODULE:FACTORY, or the table, --spec MODULE:FUNCTION."
        )
    if spec.model is None and blueprint is not None:
        return replace(
            spec,
            model=blueprint.create(),
            example=(blueprint.example(),),
            output=lambda outputs: outputs[0],  # without the hidden state
        )
    return spec


@contextlib.contextmanager
def _cautions_on_stderr() -> Iterator[None]:
    """Prints what is unsure about a table once, in one line each."""
    from fleet_tools.baselines.merging.errors import SymmetryWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SymmetryWarning)
        yield
    cautions = [each for each in caught if issubclass(each.category, SymmetryWarning)]
    for each in caught:
        if each not in cautions:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for text in dict.fromkeys(str(each.message) for each in cautions):
        print(f"Warning: {text}", file=sys.stderr)


def _traffic_text(traffic: "Traffic") -> str:
    if not traffic.calls:
        return ""
    return (
        f"\nData holders answered {traffic.calls} queries: {traffic.bytes_to_robots / 1e6:.1f} MB "
        f"to them, {traffic.bytes_from_robots / 1e6:.1f} MB back."
    )


def _require_several(models: Sequence[Path]) -> None:
    from fleet_tools.baselines.merging.errors import MergeError

    if len(models) < 2:
        raise MergeError(f"A merge needs at least 2 models; given: {models[0]}.")
    for index, model in enumerate(models):
        for other in models[:index]:
            if model.exists() and other.exists() and model.samefile(other):
                raise MergeError(
                    f"{model} is given twice. Give each model once; --averaging-weights makes one "
                    "count more."
                )


def _require_writable(output: Path, models: Sequence[Path], overwrite: bool) -> None:
    from fleet_tools.baselines.merging.errors import MergeError

    if not output.parent.is_dir():
        raise MergeError(f"There is no folder {output.parent} for {output.name}. Create it first.")
    if output.is_dir():
        raise MergeError(f"The output {output} is a folder. Name a file in it.")
    if any(output.exists() and model.exists() and output.samefile(model) for model in models):
        raise MergeError(f"The output {output} is one of the models or the base. Give another.")
    if output.exists() and not overwrite:
        raise MergeError(f"{output} exists already. Give another --output, or --overwrite.")


PROGRAM = cli.Program("baselines.merge", cli.Command(MergeOptions, _merge))
main = PROGRAM.main


if __name__ == "__main__":
    sys.exit(main())
