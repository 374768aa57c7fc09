"""A policy on disk: one safetensors file, weights with the blueprint as JSON in its metadata.

One file is there as a whole or not at all, and holds no code.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from fleet_tools.baselines.policies.blueprint import VERSION, Blueprint
from fleet_tools.baselines.policies.errors import CheckpointError
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import whole

if TYPE_CHECKING:
    import torch

_KEY = "fleet_tools_policy"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A policy as a value.

    Attributes:
        blueprint: What its network is built from.
        weights: The network's state dict; a copy is kept, on the CPU.
        notes: What is remembered of where they come from, as plain JSON; nothing depends on it.

    Raises:
        CheckpointError: The weights are those of another network, or not finite.
    """

    blueprint: Blueprint
    weights: Mapping[str, "torch.Tensor"]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import torch

        from fleet_tools.baselines.merging.queries.wire import packed
        from fleet_tools.baselines.policies.network import PolicyNetwork
        from fleet_tools.baselines.policies.weights import require_weights

        with torch.device("meta"):  # shapes without numbers
            network = PolicyNetwork(self.blueprint)
        require_weights(network.state_dict(), self.weights)
        weights = {name: packed(tensor) for name, tensor in self.weights.items()}
        object.__setattr__(self, "weights", weights)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Stores a policy as a whole or not at all; the same one as the same bytes.

    Args:
        path: Of the file, such as policy.safetensors; one that is there is replaced.
        checkpoint: What is stored.
    """
    from safetensors.torch import save_file

    with whole(Path(path)) as aside:
        save_file(checkpoint.weights, aside, {_KEY: _to_json(checkpoint)})


def is_checkpoint(path: Path) -> bool:
    """Whether a file says that it holds a policy; one that cannot be read says nothing."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return _KEY in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a policy.

    Raises:
        CheckpointError: There is no such file, it is cut off or no safetensors file (a pickle is
            never read), it holds no policy, one of another version, or one that is not whole.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint ({error}). `save_checkpoint` writes safetensors files."
        ) from None
    if text is None:
        raise CheckpointError(
            f"{path} holds weights, and not what they are weights of. Store them with "
            "`save_checkpoint`, in a Checkpoint with the blueprint of the policy."
        )
    try:
        blueprint, notes = _from_json(text)
        return Checkpoint(blueprint, weights, notes)
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{path} cannot be run: {error}") from None


def _to_json(checkpoint: Checkpoint) -> str:
    # One text for all: the library stores several in random order.
    notes = {"notes": dict(checkpoint.notes)} if checkpoint.notes else {}
    return json.dumps(json.loads(checkpoint.blueprint.to_json()) | notes)


def _from_json(text: str) -> tuple[Blueprint, dict[str, Any]]:
    try:
        data = pydantic.TypeAdapter(dict[str, pydantic.JsonValue]).validate_json(text)
    except pydantic.ValidationError as error:
        raise CheckpointError(f"its metadata are no JSON object: {error}") from None
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"its version is {data.get('version')!r}, and this one of fleet_tools reads {VERSION}. "
            "Run it with the one that wrote it, or train it again."
        )
    notes = data.pop("notes", {})
    return parse(Blueprint, data, "Its blueprint"), notes
