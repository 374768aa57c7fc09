"""Checkpoints: a policy as one safetensors file, with its blueprint as JSON in the metadata.

A file is complete or absent, and holds no code.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from fleet_tools.baselines.policies.blueprint import VERSION, Blueprint
from fleet_tools.config.values import Value, parse
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.storage.tensor_files import opened, read_tensors, write_tensors

if TYPE_CHECKING:
    import torch

_KEY = "fleet_tools_policy"
BACKBONE = "fine_tuned_from"
"""Key of the note on a policy's backbone, see `Origin`."""
_JSON_OBJECT = pydantic.TypeAdapter(dict[str, pydantic.JsonValue])


class CheckpointError(FleetToolsError, RuntimeError):
    """A file that is not a complete checkpoint, or that this version cannot read."""


class Origin(Value):
    """The backbone from which a policy was fine-tuned.

    Attributes:
        name: Name of its file, or of a released checkpoint.
        file_digest: Hash of the file, see `stored_episode.file_digest`.
    """

    name: str
    file_digest: str

    def __str__(self) -> str:
        """Returns both for messages."""
        return f"{self.name} (digest {self.file_digest[:12]})"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A policy as a value.

    Attributes:
        blueprint: Blueprint of its network.
        weights: State dict of the network; a copy is kept, on the CPU.
        notes: Notes on the origin of the weights, as plain JSON. Merges read `BACKBONE` alone.

    Raises:
        CheckpointError: The weights are another network's, or not finite.
    """

    blueprint: Blueprint
    weights: Mapping[str, "torch.Tensor"]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks and copies the weights."""
        from fleet_merging.queries.wire import packed

        require_weights(self.blueprint.create_empty().state_dict(), self.weights)
        weights = {name: packed(tensor) for name, tensor in self.weights.items()}
        object.__setattr__(self, "weights", weights)

    def backbone(self, source: str) -> Origin | None:
        """Returns the backbone that the notes name.

        Args:
            source: The checkpoint's name in messages.

        Raises:
            ConfigError: The note has no name or digest.
        """
        note = self.notes.get(BACKBONE)
        return None if note is None else parse(Origin, note, f"The backbone of {source}")


def require_weights(
    expected: Mapping[str, "torch.Tensor"], weights: Mapping[str, "torch.Tensor"]
) -> None:
    """Checks that weights are finite, and have the names, shapes and dtypes of a network.

    Args:
        expected: State dict of the network; its numbers do not matter.
        weights: The weights to check.

    Raises:
        CheckpointError: They have `soundness.defects`; the message names the tensors.
    """
    from fleet_merging.soundness import defects

    if found := defects(weights, expected):
        raise CheckpointError(f"The weights do not fit this network: {found}.")


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Stores a policy, completely or not at all; the same policy gives the same bytes.

    Args:
        path: Path of the file, such as policy.safetensors; an existing file is replaced.
        checkpoint: The policy.
    """
    write_tensors(Path(path), checkpoint.weights, {_KEY: _to_json(checkpoint)})


def is_checkpoint(path: Path) -> bool:
    """Whether a file declares that it holds a policy; False for one that cannot be read."""
    try:
        return _KEY in _metadata(path)
    except CheckpointError:
        return False


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads a policy.

    Raises:
        CheckpointError: The file is missing, truncated or not a safetensors file (pickles are never
            read). Or it holds no policy, one of another version, or an incomplete one.
    """
    weights, metadata = read_tensors(path, CheckpointError, _REMEDY, "checkpoint")
    with _cannot_be_run(path):
        blueprint, notes = _from_metadata(metadata)
        return Checkpoint(blueprint, weights, notes)


def env_kwargs_of(path: str | Path) -> dict[str, Any]:
    """Returns the keyword arguments of an environment that give a policy its observations.

    Weights are not read, and PyTorch is not imported.

    Args:
        path: Path of the policy's checkpoint.

    Raises:
        CheckpointError: The file is not a safetensors file, or its metadata hold no policy of this
            version.
    """
    metadata = _metadata(path)
    with _cannot_be_run(path):
        blueprint, _ = _from_metadata(metadata)
    return blueprint.least_env_kwargs


_REMEDY = "Checkpoints are safetensors files, as `save_checkpoint` writes them."


def _metadata(path: str | Path) -> Mapping[str, str]:
    with opened(path, CheckpointError, _REMEDY, "checkpoint", "numpy") as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _cannot_be_run(path: str | Path) -> Iterator[None]:
    """Adds the path to the error messages about a file's content."""
    try:
        yield
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{path} is not a runnable policy: {error}") from None


def _to_json(checkpoint: Checkpoint) -> str:
    # One metadata entry holds everything, because the library stores several in random order.
    notes = {"notes": dict(checkpoint.notes)} if checkpoint.notes else {}
    return json.dumps(json.loads(checkpoint.blueprint.to_json()) | notes)


def _from_metadata(metadata: Mapping[str, str]) -> tuple[Blueprint, dict[str, Any]]:
    """Returns the blueprint and the notes of a file's metadata."""
    if _KEY not in metadata:
        raise CheckpointError(
            "it holds weights, but not the blueprint of a policy. Store them with "
            "`save_checkpoint`, as a Checkpoint with its blueprint."
        )
    try:
        data = _JSON_OBJECT.validate_json(metadata[_KEY])
    except pydantic.ValidationError as error:
        raise CheckpointError(f"its metadata is not a JSON object: {error}") from None
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"its version is {data.get('version')!r}, and this version of Fleet-Tools reads "
            f"{VERSION}. Use the version of Fleet-Tools that wrote it, or train it again."
        )
    notes = data.pop("notes", {})
    if not isinstance(notes, dict):
        raise CheckpointError("its notes are not a JSON object.")
    return parse(Blueprint, data, "Its blueprint"), notes
