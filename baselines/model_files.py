"""Reading of models for programs: safetensors files, and functions in a user's code.

Models are data; no pickle is ever read.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from fleet_merging.adapters import CONFIG_FILE, Config
from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.errors import ConfigError, FleetToolsError, known_errors
from fleet_tools.storage import strict_json
from fleet_tools.storage.tensor_files import write_tensors
from fleet_tools.utils.imports import load_user_object

if TYPE_CHECKING:
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Origin

_DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
"""Dtypes that can be averaged."""

_LARGEST_EXAMPLE = 10**8

_NOTES = "fleet_tools"
"""Key of the notes in a file's metadata."""


class IncompatiblePoliciesError(FleetToolsError, ValueError):
    """Policies with different blueprints, which cannot be merged."""


def read_models(
    models: Sequence[Path], base: Path | None = None
) -> "tuple[list[dict[str, torch.Tensor]], Blueprint | None, Mapping[str, Any]]":
    """Reads the models of a merge: checkpoints of one kind, or state dicts.

    Args:
        models: Their files.
        base: File of their common initial weights.

    Returns:
        The state dicts, the base's last; the blueprint of the checkpoints, None if they are no
        checkpoints; and their common notes, see `Checkpoint`.

    Raises:
        MergeError: Only some are checkpoints, or a state dict cannot be read, see `read_model`.
        IncompatiblePoliciesError: They are checkpoints of two kinds, or of two backbones.
        CheckpointError: A checkpoint is damaged, or of another version.
        ConfigError: Its note on a backbone is none.
    """
    # Policies depend on merging, for their symmetry.
    from fleet_tools.baselines.policies.checkpoint import BACKBONE, is_checkpoint, load_checkpoint

    paths = [*models, *filter(None, [base])]
    policies = [path for path in paths if is_checkpoint(path)]
    if not policies:
        return [read_model(path) for path in paths], None, {}
    if others := [path.name for path in paths if path not in policies]:
        raise MergeError(
            f"{', '.join(path.name for path in policies)} are checkpoints, and {', '.join(others)} "
            "are not. Store all of them with `policies.checkpoint.save_checkpoint`."
        )
    checkpoints = [load_checkpoint(path) for path in paths]
    found = {path: each.backbone(str(path)) for path, each in zip(paths, checkpoints, strict=True)}
    origins = {path: each for path in models if (each := found[path]) is not None}
    if origins:
        _require_one_backbone(origins, base, None if base is None else found[base])
    common_blueprint(
        {str(path): each.blueprint for path, each in zip(paths, checkpoints, strict=True)}
    )
    all_known = len(origins) == len(models)
    notes = {BACKBONE: origins[models[0]].model_dump()} if all_known else {}
    return [dict(each.weights) for each in checkpoints], checkpoints[0].blueprint, notes


def _require_one_backbone(
    origins: "Mapping[Path, Origin]", base: Path | None, noted: "Origin | None"
) -> None:
    """Checks that policies and their base are of the same backbone.

    Args:
        origins: Backbones of the policies, at least one.
        base: The base.
        noted: Its own backbone, if it is a merge of an earlier round.
    """
    from fleet_tools.baselines.policies.checkpoint import Origin

    (first, backbone), *others = origins.items()
    for path, other in others:
        if other.file_digest != backbone.file_digest:
            raise IncompatiblePoliciesError(
                f"{first} was fine-tuned from {backbone}, and {path} from {other}. Robots' changes "
                "add up from one backbone only: give their fleets the same `backbone.checkpoint`."
            )
    if base is None:
        return
    own = noted or Origin(name=base.name, file_digest=file_digest(base))
    if own.file_digest != backbone.file_digest:
        raise IncompatiblePoliciesError(
            f"{first} was fine-tuned from {backbone}, but the base is {base}, of {own}. Give its "
            "backbone as --base, or a merge of policies that were fine-tuned from it."
        )


def read_model(path: Path) -> dict[str, torch.Tensor]:
    """Reads a state dict.

    Raises:
        MergeError: The file is missing, is no safetensors file, or holds no tensors, NaN, infinity,
            or a dtype that cannot be averaged.
    """
    if os.path.isdir(path):
        raise MergeError(f"{path} is a folder. Name a safetensors file in it.")
    if not os.path.isfile(path):  # `Path.is_file` raises if a name is too long
        raise MergeError(f"There is no file {path}.")
    try:
        state = load_file(path)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch lacks
        raise MergeError(
            f"{path} is not a safetensors file ({error}). Convert your own pickle with "
            "safetensors.torch.save_file(torch.load(path, weights_only=True), ...)."
        ) from None
    if not state:
        raise MergeError(f"{path} holds no tensors. Store the model's whole state dict in it.")
    if others := [name for name, value in state.items() if value.dtype not in _DTYPES]:
        raise MergeError(
            f"{path} holds {_plain(state[others[0]].dtype)} in {', '.join(others)}. Models are "
            f"averaged in {', '.join(map(_plain, _DTYPES))}. Cast it first: "
            "safetensors.torch.save_file({k: v.to(torch.bfloat16) for k, v in state.items()}, ...)."
        )
    if names := not_finite(state):
        raise MergeError(f"{path} holds NaN or infinity in {', '.join(names)}. Train it again.")
    return state


def read_notes(path: Path) -> Any:
    """Returns the notes that `write_model` stored with a model; None if there are none.

    Raises:
        MergeError: The file or its notes are damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_NOTES)
        return None if text is None else strict_json.loads(text)
    except (OSError, SafetensorError, ValueError) as error:
        raise MergeError(
            f"The notes of {path} cannot be read: {error}. Write the file again."
        ) from None


def write_model(path: Path, state: State, notes: Any = None) -> None:
    """Stores a state dict completely or not at all; equal models give equal bytes.

    Args:
        path: The file; an existing one is replaced.
        state: The state dict.
        notes: JSON data, stored in the file's metadata.
    """
    write_tensors(path, state, None if notes is None else {_NOTES: json.dumps(notes)})


def load_model(name: str, example: str | None) -> tuple[torch.nn.Module, Any]:
    """Imports a module and calls its function. Its code has to be trusted, unlike models.

    Args:
        name: "module:factory"; programs also find modules of the working directory.
        example: See `read_example`; None if the function returns one, too.

    Returns:
        A model, and its argument or a tuple of its arguments.

    Raises:
        MergeError: The name has another form, the module cannot be imported, or the function needs
            arguments, fails or returns something else. Or the example cannot be read.
        UnknownNameError: The module has no such function.
    """
    returned = call(name, "model")
    if isinstance(returned, torch.nn.Module):
        if example is None:
            raise MergeError(
                f"The model {name!r} has no example of its inputs. Give --example 8x3, the shape "
                "of a batch, or a safetensors file; or return (model, example)."
            )
        return returned, read_example(example)
    if isinstance(returned, tuple) and len(returned) == 2:
        module, own = returned
        if isinstance(module, torch.nn.Module):
            return module, own if example is None else read_example(example)
    raise MergeError(
        f"The model {name!r} returned a {type(returned).__name__}. Return a torch.nn.Module, or a "
        "tuple of it and an example, its argument or a tuple of its arguments."
    )


def read_example(text: str) -> tuple[torch.Tensor, ...]:
    """Returns arguments of a model: normal numbers of a shape, or the tensors of a file.

    Args:
        text: A shape such as "8x3x32x32", or a safetensors file with one tensor for each argument,
            in the order of their names.

    Raises:
        MergeError: It is neither, or see `read_model`.
    """
    if re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        shape = [int(size) for size in text.split("x")]
        if math.prod(shape) > _LARGEST_EXAMPLE:
            raise MergeError(f"An example of {text} numbers is too large. Give a smaller batch.")
        return (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
    if not text.endswith(".safetensors"):
        raise MergeError(
            f"The example {text!r} is neither a shape, such as 8x3x32x32, nor a safetensors file."
        )
    tensors = read_model(Path(text))
    return tuple(tensors[name] for name in sorted(tensors))


def configs_beside(paths: Sequence[Path]) -> list[Config] | None:
    """Returns the configurations in the folders of adapters; None if there are none.

    Raises:
        MergeError: Only some have one, or one is no JSON object.
    """
    files = [path.parent / CONFIG_FILE for path in paths]
    if not any(file.is_file() for file in files):
        return None
    if missing := [str(file) for file in files if not file.is_file()]:
        raise MergeError(f"There is no {', '.join(missing)}, which has the factors' scale. Add it.")
    configs = []
    for file in files:
        try:
            config = strict_json.load(file)
        except (OSError, ValueError) as error:
            raise MergeError(f"{file} cannot be read: {error}. Store the adapter again.") from None
        if not isinstance(config, dict):
            raise MergeError(f"{file} holds no JSON object. Store the adapter again.")
        configs.append(config)
    return configs


def call(name: str, what: str, *arguments: Any) -> Any:
    """Imports a user's function and calls it.

    Args:
        name: "module:function".
        what: Name of its result in messages, such as "model".
        arguments: Its arguments.

    Raises:
        MergeError, UnknownNameError: See `load_model`.
    """
    function = load_user_object(name, what, MergeError)
    try:
        return function(*arguments)
    except known_errors():
        raise
    except Exception as error:
        with_what = "the state dicts" if arguments else "no arguments"
        raise MergeError(
            f"The {what} {name!r} failed ({type(error).__name__}: {error}). It is called with "
            f"{with_what}."
        ) from error


def require_output(output: Path, models: Sequence[Path], overwrite: bool) -> None:
    """Checks that a file may be written.

    Args:
        output: The file.
        models: Files that are read, and not replaced.
        overwrite: Whether another existing file may be replaced.

    Raises:
        ConfigError: It may not.
    """
    if output.is_dir():
        raise ConfigError(f"The output {output} is a folder. Name a file in it.")
    if any(output.exists() and model.exists() and output.samefile(model) for model in models):
        raise ConfigError(f"The output {output} is also one of the input models. Give another.")
    if output.exists() and not overwrite:
        raise ConfigError(f"{output} exists already. Give another --output, or --overwrite.")


def not_finite(state: State) -> list[str]:
    """Returns the names of the tensors with NaN or infinity."""
    return [name for name, value in state.items() if not bool(torch.isfinite(value).all())]


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def common_blueprint(blueprints: Mapping[str, "Blueprint"]) -> "Blueprint":
    """Returns the common blueprint of policies to be averaged.

    Args:
        blueprints: At least one blueprint, by its name in messages.

    Raises:
        IncompatiblePoliciesError: They differ; the message lists every difference.
    """
    (first, blueprint), *others = blueprints.items()
    for name, other in others:
        found = blueprint.differences(other)
        if blueprint.scaling != other.scaling:
            found.append("other statistics scale the inputs")
        if found:
            raise IncompatiblePoliciesError(
                f"{first} and {name} have different blueprints: in the first, {'; '.join(found)}. "
                "Only weights with the same meaning can be merged. Train the second again with the "
                f"config and layout of the first, by `--like {first}` of `python -m "
                "fleet_tools.baselines.train`."
            )
    return blueprint
