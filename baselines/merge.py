"""Merges policies stored as safetensors, and says what was lost on the way.

    python -m fleet_tools.baselines.merge a.safetensors b.safetensors \
        --method git_rebasin --output merged.safetensors

Checkpoints (`policies.checkpoint`) become a checkpoint that acts. Of other models, `--spec` names
a function of yours that returns their table of axes; see `merging.spec`. Models are data, and no
pickle is ever read. The output is there as a whole or not at all.
"""

import argparse
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.utils import cli as programs

# PyTorch is imported once the arguments are known to be good.
if TYPE_CHECKING:
    import torch

    from fleet_tools.baselines.merging.symmetry.table import State
    from fleet_tools.baselines.policies.blueprint import Blueprint


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _merge, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.baselines.merge",
        "Merges policies into one, and reports barriers before and after alignment.",
        "Exits with 0 when the merged policy is stored, 1 when it holds numbers that are not "
        "finite (and is not stored), or the disk failed, 2 when it cannot begin.",
    )
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", type=Path,
        help="checkpoints of one kind, or state dicts of your own, as safetensors files",
    )  # fmt: skip
    parser.add_argument(
        "--spec", metavar="MODULE:FUNCTION",
        help="returns the table of axes, or a merging.spec.Spec with data; this code is run "
        "(checkpoints know their axes)",
    )  # fmt: skip
    parser.add_argument(
        "--method", metavar="NAME", required=True,
        help="one of merging.registry's, such as naive_average, git_rebasin or fleet_merge, or "
        "module:function for one of yours; this code is run",
    )  # fmt: skip
    parser.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[],
        help="of the method or its Descent, such as epochs=5 or steps=60; may be repeated",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FILE", type=Path, required=True)
    parser.add_argument(
        "--weights", metavar="W", type=float, nargs="+", help="of each model in the average"
    )
    parser.add_argument("--seed", type=programs.seed, default=0, help="of all that is drawn (0)")
    parser.add_argument(
        "--points", metavar="N", type=programs.positive_int, default=11,
        help="on the line of each barrier: odd, at least 3 (11)",
    )  # fmt: skip
    return parser


def _merge(options: argparse.Namespace) -> int:
    import torch

    from fleet_tools.baselines.merging.errors import FleetError
    from fleet_tools.baselines.merging.methods import registry
    from fleet_tools.baselines.merging.report import as_text, report
    from fleet_tools.baselines.merging.spec import Spec, load_spec
    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint

    method = registry.find(options.method)
    if options.points < 3 or options.points % 2 == 0:
        raise FleetError(f"--points is {options.points}. Give an odd number, at least 3.")
    chosen = read_options(method, options.option)
    _require_writable(options.output, options.models)
    models, blueprint = read_models(options.models)
    if options.spec is None and blueprint is None:
        raise FleetError(
            "These models are no checkpoints, and do not say what their axes are. A function of "
            "yours does: --spec MODULE:FUNCTION."
        )
    spec = load_spec(options.spec) if options.spec else Spec(blueprint.symmetry())
    fleet = spec.fleet(models, options.weights, options.seed)

    begun = time.perf_counter()
    merged = registry.merge(options.method, fleet, **chosen)
    seconds = round(time.perf_counter() - begun, 3)
    state = spec.finish(merged.state)
    measured = report(fleet, merged, spec.measure(fleet), spec.finish, options.points)
    broken = [name for name, value in state.items() if not bool(torch.isfinite(value).all())]
    if broken:
        print(f"Not stored: {', '.join(broken)} would not be finite.", file=sys.stderr)
        return programs.NOT_WELL
    notes = {
        "method": options.method,
        "options": dict(item.split("=", 1) for item in options.option),
        "models": [path.name for path in options.models],
        "weights": fleet.shares.tolist(),
        "seed": options.seed,
    }
    if blueprint is None:
        write_model(options.output, state, notes)
    else:
        save_checkpoint(options.output, Checkpoint(blueprint, state, notes))
    if options.json:
        print(
            json.dumps(
                {
                    "output": str(options.output),
                    "method": options.method,
                    "seconds": seconds,
                    **asdict(measured),
                    "traffic": asdict(merged.traffic),
                }
            )
        )
    elif not options.quiet:
        print(f"{options.output}: {len(models)} models by {options.method}, in {seconds:.1f} s")
        print(as_text(measured))
        if merged.traffic.calls:
            sent, got = merged.traffic.bytes_to_robots, merged.traffic.bytes_from_robots
            print(
                f"Robots were asked {merged.traffic.calls} times: {sent / 1e6:.1f} MB to them, "
                f"{got / 1e6:.1f} MB back."
            )
    return programs.OK


def read_models(
    paths: Sequence[Path],
) -> tuple[list[dict[str, "torch.Tensor"]], "Blueprint | None"]:
    """Reads what is to be merged: checkpoints of one kind, or state dicts.

    Returns:
        The state dicts, and the checkpoints' blueprint.

    Raises:
        FleetError: Some are checkpoints and some are not, or see `read_model`.
        OtherPolicyError: They are checkpoints of two kinds.
        CheckpointError: One is not whole, or of another version.
    """
    from fleet_tools.baselines.merging.errors import FleetError
    from fleet_tools.baselines.policies.blueprint import common_blueprint
    from fleet_tools.baselines.policies.checkpoint import is_checkpoint, load_checkpoint

    policies = [path for path in paths if is_checkpoint(path)]
    if not policies:
        return [read_model(path) for path in paths], None
    if others := [path.name for path in paths if path not in policies]:
        raise FleetError(
            f"{', '.join(path.name for path in policies)} are checkpoints, and {', '.join(others)} "
            "are not. Store all by `policies.checkpoint.save_checkpoint`."
        )
    checkpoints = [load_checkpoint(path) for path in paths]
    blueprints = {str(path): each.blueprint for path, each in zip(paths, checkpoints, strict=True)}
    return [dict(each.weights) for each in checkpoints], common_blueprint(blueprints)


def read_model(path: Path) -> dict[str, "torch.Tensor"]:
    """Reads a state dict.

    Raises:
        FleetError: There is no such file, it is no safetensors file, or holds numbers that are not
            finite.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from fleet_tools.baselines.merging.errors import FleetError

    if not path.is_file():
        raise FleetError(f"There is no file {path}.")
    try:
        state = load_file(path)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch has not
        raise FleetError(
            f"{path} is no safetensors file ({error}). A pickle of your own becomes one by "
            "safetensors.torch.save_file(torch.load(path, weights_only=True), ...)."
        ) from None
    broken = [name for name, value in state.items() if not bool(torch.isfinite(value).all())]
    if broken:
        raise FleetError(f"{path} holds NaN or infinity in {', '.join(broken)}. Train it again.")
    return state


def read_notes(path: Path) -> Any:
    """What `write_model` noted beside a model; None where nothing was."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        notes = (file.metadata() or {}).get("fleet_tools")
    return None if notes is None else json.loads(notes)


def write_model(path: Path, state: "State", notes: Any = None) -> None:
    """Stores a state dict as a whole or not at all; the same one as the same bytes.

    Args:
        path: Of the file; one that is there is replaced.
        state: What is stored.
        notes: For the file's metadata, as JSON under the key "fleet_tools".
    """
    from safetensors.torch import save_file

    from fleet_tools.baselines.merging.queries.wire import packed
    from fleet_tools.storage.atomic_files import whole

    own = {name: packed(tensor) for name, tensor in state.items()}
    with whole(path) as aside:
        # One key only: the library stores several in random order.
        save_file(own, aside, None if notes is None else {"fleet_tools": json.dumps(notes)})


def read_options(method: Callable, texts: Sequence[str]) -> dict[str, Any]:
    """Reads NAME=VALUE: a method's own keywords, and fields of its `Descent`.

    Raises:
        FleetError: A text has another form, or a value another kind than the default's.
        UnknownNameError: The method has no such option.
    """
    from fleet_tools.baselines.merging.errors import FleetError
    from fleet_tools.baselines.merging.matching.soft_descent import Descent
    from fleet_tools.errors import UnknownNameError

    own = {
        name: parameter.default
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    descents = "descent" in own
    own.pop("descent", None)
    of_descent = {field.name: field.default for field in fields(Descent)} if descents else {}
    read: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise FleetError(f"The option {text!r} is no NAME=VALUE, such as epochs=5.")
        if name not in own | of_descent:
            raise UnknownNameError("option of this method", name, own | of_descent)
        read[name] = _read_value(name, value, (own | of_descent)[name])
    chosen = {name: read[name] for name in read if name in own}
    if of_descent.keys() & read.keys():
        chosen["descent"] = Descent(**{name: read[name] for name in read if name in of_descent})
    return chosen


def _read_value(name: str, text: str, default: Any) -> Any:
    from fleet_tools.baselines.merging.errors import FleetError

    # Where nothing is the default, as in `participants`, a number is meant.
    kind = int if default is None else type(default)
    if kind is bool and text in ("true", "false"):
        return text == "true"
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    meant = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
    raise FleetError(f"The option {name} is {meant}; given: {text!r}.")


def _require_writable(output: Path, models: Sequence[Path]) -> None:
    from fleet_tools.baselines.merging.errors import FleetError

    if not output.parent.is_dir():
        raise FleetError(f"There is no folder {output.parent} for {output.name}. Make it first.")
    if output.is_dir():
        raise FleetError(f"The output {output} is a folder. Name a file in it.")
    if any(output.exists() and model.exists() and output.samefile(model) for model in models):
        raise FleetError(f"The output {output} is one of the models. Give it another name.")


if __name__ == "__main__":
    sys.exit(main())
