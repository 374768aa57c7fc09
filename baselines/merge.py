"""Merges models: `python -m fleet_tools.baselines.merge A B --method git_rebasin --output MERGED`.

Checkpoints of policies are merged into a checkpoint, each with its own `--dataset` if the method
needs data. For other models, `--model` names a function that returns their architecture, to derive
the table of axes. A false table is refused.
"""

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from tyro.conf import Positional, UseAppendAction, arg

from fleet_tools.config.values import Number, OddCount, Seed
from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli
from fleet_tools.utils.progress import progress_bar

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import torch

    from fleet_merging.adapters import Config
    from fleet_merging.problem import MergeProblem, MergeResult
    from fleet_merging.queries.data_holder import LocalDataHolder
    from fleet_merging.queries.traffic import Traffic
    from fleet_merging.symmetry.check import CheckReport
    from fleet_merging.symmetry.table import State
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Checkpoint

_BATCH = 256
"""Approximate number of steps in a draw from a dataset."""


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
    """Safetensors files: checkpoints of one kind of policy, or state dicts of other models. Or
    folders of policies of LeRobot (pretrained_model), in an environment of LeRobot's. The method
    lora reads the adapter_config.json beside each PEFT adapter, and stores one."""
    method: str
    """Merging method: naive_average, git_rebasin, fleet_merge, density_gated_ensemble or another
    one of fleet_merging.METHODS. Or module:function for your own; its code is run."""
    output: Path
    """File of the merged model; folder of a policy of LeRobot."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Option of the method or its Descent, such as epochs=5 or steps=60; may be repeated."""
    dataset: Annotated[UseAppendAction[tuple[Path, ...]], arg(metavar="FOLDER")] = ()
    """Dataset of a checkpoint, for methods that measure losses, gradients and moments: repeated,
    one for each model in the same order."""
    model: Annotated[str | None, arg(metavar="MODULE:FACTORY")] = None
    """For models that are no checkpoints: function that returns their architecture, or a tuple of
    it and an example; its code is run."""
    example: Annotated[str | None, arg(metavar="SHAPE|FILE")] = None
    """Inputs of --model: the shape of a batch, such as 8x3x32x32, or a safetensors file with one
    tensor for each argument."""
    data: Annotated[str | None, arg(metavar="MODULE:FUNCTION")] = None
    """Function that returns the data of --model's models: a list with one element for each, an
    iterable of batches (inputs, labels) or a data holder. Its code is run."""
    problem: Annotated[str | None, arg(metavar="MODULE:FUNCTION")] = None
    """Function of the list of state dicts that returns a MergeProblem, for models with a table of
    your own; its code is run."""
    base: Annotated[str | None, arg(metavar="PATH")] = None
    """File of the common initial weights of all models, for methods such as task_arithmetic and
    ties; a checkpoint if the models are checkpoints, perhaps a released one (fleet-tools/NAME)."""
    overwrite: bool = False
    """Replace an existing output."""
    averaging_weights: tuple[Number, ...] = ()
    """Weight of each model in the average, of any sum (default: equal weights)."""
    seed: Seed = 0
    """Seed of all random numbers."""
    points: OddCount = 11
    """Number of points on the line of each barrier: odd, at least 3."""


def _merge(options: MergeOptions) -> int:
    from fleet_merging.errors import UnsoundMergeError

    try:
        return _merge_models(options)
    except UnsoundMergeError as error:
        print(f"Not stored: {error}", file=sys.stderr)
        return cli.FAILED


def _merge_models(options: MergeOptions) -> int:
    from fleet_merging.adapters import CONFIG_FILE
    from fleet_merging.ensembles import Ensemble
    from fleet_merging.methods import registry
    from fleet_merging.methods.options import read_options
    from fleet_merging.report import as_text, measure_merge
    from fleet_tools.baselines.model_files import read_models, require_output, write_model
    from fleet_tools.baselines.policies.checkpoint import save_checkpoint
    from fleet_tools.baselines.policies.lerobot_merging import is_lerobot
    from fleet_tools.baselines.policies.merged_checkpoints import merged_checkpoint
    from fleet_tools.policies.released import find_path
    from fleet_tools.storage.atomic_files import write_file

    method_options = read_options(registry.find(options.method), options.option)
    _require_several(options.models)
    base = None if options.base is None else find_path(options.base)
    inputs = [*options.models, *filter(None, [base])]
    if not options.output.parent.is_dir():
        folder, name = options.output.parent, options.output.name
        raise ConfigError(f"There is no folder {folder} for {name}. Create it first.")
    require_output(options.output, inputs, options.overwrite)
    if is_lerobot(options.models[0]):
        return _merge_lerobot(options, base, method_options)
    states, blueprint, origin = read_models(options.models, base)
    models = states[: len(options.models)]
    config = None
    if options.method == "lora":
        models, config = _adapters(options, models)
    with _cautions_on_stderr():
        problem = _problem(options, models, None if base is None else states[-1], blueprint)
        checked = _checked(problem)
    if checked is None and registry.permutes(options.method):
        print(
            "Warning: The table was not checked. Give the merge problem a module and an example.",
            file=sys.stderr,
        )
    notes = {
        **origin,
        "method": options.method,
        "options": dict(text.split("=", 1) for text in options.option),
        "models": [path.name for path in options.models],
        "weights": problem.normalized_weights.tolist(),
        "seed": options.seed,
        **({} if base is None else {"base": base.name}),
    }
    with progress_bar(2, "stage") as bar:
        bar.set_postfix_str("merging", refresh=sys.stderr.isatty())
        started = time.perf_counter()
        merged = registry.merge(options.method, problem, **method_options)
        seconds = round(time.perf_counter() - started, 3)
        bar.set_postfix_str("measuring barriers", refresh=False)
        bar.update()
        policy = None
        if blueprint is not None and options.problem is None:
            policy = merged_checkpoint(blueprint, merged, notes)
        network = _network(policy, merged)
        report = measure_merge(problem, merged, options.points, network)
        bar.update()
    if policy is not None:
        save_checkpoint(options.output, policy)
    elif merged.is_ensemble:
        model = merged.model
        assert isinstance(model, Ensemble)
        write_model(options.output, model.state_dict(), {**notes, "ensemble": model.description()})
    else:
        # One name of tied weights, as in the files.
        tied = set(problem.models[0]) - set(models[0])
        kept = {name: each for name, each in merged.state.items() if name not in tied}
        write_model(options.output, kept, notes)
    if config is not None:
        write_file(options.output.parent / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    summary = {
        "output": str(options.output),
        "method": options.method,
        "seconds": seconds,
        "members": len(merged.members),
        "parameters": merged.parameters,
        **asdict(report),
        "traffic": asdict(merged.traffic),
        "check": None if checked is None else asdict(checked),
    }
    options.report(
        summary,
        lambda: (
            f"{options.output}: {len(models)} models by {options.method}, in {seconds:.1f} s; "
            f"{_size_text(merged)}\n"
            f"Table: {checked or 'not checked'}\n"
            f"{as_text(report)}{_traffic_text(merged.traffic)}"
        ),
    )
    return cli.OK


def _merge_lerobot(
    options: MergeOptions, base: Path | None, method_options: Mapping[str, Any]
) -> int:
    """Merges policies of LeRobot into one."""
    from fleet_merging.methods import registry
    from fleet_tools.baselines.policies.lerobot_merging import lerobot_problem, write_lerobot

    weights = options.averaging_weights or None
    with _cautions_on_stderr():
        problem = lerobot_problem(
            options.models, base, weights, seed=options.seed, method=options.method
        )
    merged = registry.merge(options.method, problem, **method_options)
    write_lerobot(options.output, options.models[0], merged.state)
    summary = {
        "output": str(options.output),
        "method": options.method,
        "parameters": merged.parameters,
    }
    options.report(
        summary,
        lambda: (
            f"{options.output}: {len(options.models)} policies of LeRobot by {options.method}; "
            f"{_size_text(merged)}"
        ),
    )
    return cli.OK


def _adapters(
    options: MergeOptions, models: "Sequence[State]"
) -> "tuple[Sequence[State], Config | None]":
    """Returns adapters of one rank and scale with their configuration, if theirs are known."""
    from fleet_merging.adapters import CONFIG_FILE, alike
    from fleet_tools.baselines.model_files import configs_beside, require_output

    configs = configs_beside(options.models)
    if configs is None:
        print(
            f"Warning: found no {CONFIG_FILE} beside the models. The merge assumes the same scale "
            "of factors in all models.",
            file=sys.stderr,
        )
        return models, None
    models, config = alike(models, configs)
    if configs_beside([options.output]) == [config]:
        return models, None
    output = options.output.parent / CONFIG_FILE
    inputs = [path.parent / CONFIG_FILE for path in options.models]
    require_output(output, inputs, options.overwrite)
    return models, config


def _problem(
    options: MergeOptions,
    models: "Sequence[State]",
    base: "State | None",
    blueprint: "Blueprint | None",
) -> "MergeProblem":
    """Returns the problem: the user's own, or one of checkpoints or of other models."""
    from fleet_merging.errors import MergeError
    from fleet_merging.methods import registry
    from fleet_merging.problem import MergeProblem
    from fleet_merging.user_models import problem_of
    from fleet_tools.baselines.model_files import call, load_model

    weights = options.averaging_weights or None
    foreign = {"model": options.model, "example": options.example, "data": options.data}
    given = [f"--{name}" for name, value in foreign.items() if value is not None]
    if options.problem is not None:
        if given or options.dataset:
            raise MergeError(
                f"--problem defines the whole merge; leave out {', '.join(given) or '--dataset'}."
            )
        problem = call(options.problem, "problem", models)
        if not isinstance(problem, MergeProblem):
            raise MergeError(
                f"The problem {options.problem!r} returned a {type(problem).__name__}. Return a "
                "fleet_merging.MergeProblem."
            )
        changes = {"averaging_weights": weights, "base": base, "seed": options.seed or None}
        return replace(problem, **{k: v for k, v in changes.items() if v is not None})
    if blueprint is not None:
        if given:
            raise MergeError(
                f"{', '.join(given)} are for models other than checkpoints of policies. For "
                "checkpoints, give each model's data with --dataset."
            )
        return _checkpoint_problem(options, models, base, blueprint)
    if options.dataset:
        raise MergeError(
            "--dataset is for checkpoints of policies. Give --model MODULE:FACTORY and --data "
            "MODULE:FUNCTION for other models."
        )
    if options.model is None and registry.permutes(options.method):
        raise MergeError(
            "These models are not checkpoints of policies, so their table of axes is unknown. Give "
            "a function that returns the model (--model MODULE:FACTORY) or the problem (--problem "
            "MODULE:FUNCTION)."
        )
    module, example = (
        (None, None) if options.model is None else load_model(options.model, options.example)
    )
    data = None if options.data is None else call(options.data, "data")
    return problem_of(
        models,
        data=data,
        model=module,
        example=example,
        base=base,
        averaging_weights=weights,
        seed=options.seed,
        method=options.method,
    )


def _checkpoint_problem(
    options: MergeOptions, models: "Sequence[State]", base: "State | None", blueprint: "Blueprint"
) -> "MergeProblem":
    from fleet_merging.errors import MergeError
    from fleet_tools.baselines.federated.robot import local_data_holder
    from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem
    from fleet_tools.baselines.training.demonstrations import Trajectories
    from fleet_tools.dataset.samples import Samples

    folders = options.dataset
    if folders and len(folders) != len(models):
        raise MergeError(
            f"There are {len(models)} models, but --dataset is given {len(folders)} times. Give "
            "each model its own data, in the same order."
        )

    def holder(*paths: Path) -> "LocalDataHolder":
        samples = Samples(list(map(str, paths)), observations=list(blueprint.observation))
        return local_data_holder(blueprint, Trajectories(samples, blueprint), _BATCH)

    return checkpoint_problem(
        blueprint,
        models,
        [holder(folder) for folder in folders],
        holder(*folders) if folders else None,
        averaging_weights=options.averaging_weights or None,
        base=base,
        seed=options.seed,
        method=options.method,
    )


def _checked(problem: "MergeProblem") -> "CheckReport | None":
    """Checks the table by the module; None without a module."""
    from fleet_merging.symmetry.check import check

    if problem.module is None or problem.example is None:
        return None
    return check(problem.symmetry, problem.module, problem.example, output=problem.output)


def _network(policy: "Checkpoint | None", merged: "MergeResult") -> "torch.nn.Module | None":
    """Returns the merged network as a module; None if only its weights are known."""
    if policy is None:
        return None if merged.module is None else merged.model
    network = policy.blueprint.create().eval()
    network.load_state_dict(policy.weights)
    return network


def _size_text(merged: "MergeResult") -> str:
    kind = f"an ensemble of {len(merged.members)}" if merged.is_ensemble else "one network"
    return f"{kind}, {merged.parameters:,} parameters"


@contextlib.contextmanager
def _cautions_on_stderr() -> Iterator[None]:
    """Prints each warning about a table once, in one line."""
    from fleet_merging.errors import SymmetryWarning

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
        f"\nData holders answered {traffic.calls} queries: {traffic.downloaded_bytes / 1e6:.1f} MB "
        f"to them, {traffic.uploaded_bytes / 1e6:.1f} MB back."
    )


def _require_several(models: Sequence[Path]) -> None:
    from fleet_merging.errors import MergeError

    if len(models) < 2:
        raise MergeError(f"A merge needs at least 2 models; given: {models[0]}.")
    for index, model in enumerate(models):
        for other in models[:index]:
            if model.exists() and other.exists() and model.samefile(other):
                raise MergeError(
                    f"{model} is given twice. Give each model once; use --averaging-weights to "
                    "give one more weight."
                )


PROGRAM = cli.Program("baselines.merge", cli.Command(MergeOptions, _merge))
main = PROGRAM.main


if __name__ == "__main__":
    sys.exit(main())
