"""Tensors in safetensors files, which appear complete or not at all, and may carry a digest."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.atomic_files import write_file

_DIGEST = "digest"
"""Name of the tensor with the digest, which no other tensor may have."""


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None) -> None:
    """Stores tensors; equal tensors and metadata give equal bytes.

    The library's own `save_file` is not used: a kill leaves its temporary file, which no
    `atomic_files.leftovers` finds.

    Args:
        path: The file; an existing one is replaced.
        tensors: PyTorch's, contiguous, none of which shares memory with another.
        metadata: One entry at most: the library stores several in random order.

    Raises:
        OSError: The disk is full or gone; an existing file is unchanged.
    """
    from safetensors.torch import save

    write_file(path, save(dict(tensors), metadata))


def write_checked(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None) -> None:
    """Stores tensors with a digest of all of them and the metadata; see `write_tensors`."""
    import torch

    digest = torch.frombuffer(bytearray(_digest(tensors, metadata)), dtype=torch.uint8)
    write_tensors(path, {**tensors, _DIGEST: digest}, metadata)


def read_checked(
    path: Path, error: type[FleetToolsError], remedy: str = ""
) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Reads what `write_checked` stored.

    Args:
        path: The file.
        error: Class of the error raised.
        remedy: What can be done about a damaged file, for the error message.

    Returns:
        The tensors, and the metadata.

    Raises:
        FleetToolsError: The file is missing, is not a safetensors file, or differs from what was
            stored.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as opened:
            file: Any = opened  # the library's stubs have no types
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, RuntimeError) as raised:
        raise error(f"{path} cannot be read: {raised}. {remedy}") from None
    digest = tensors.pop(_DIGEST, None)
    if digest is None or digest.flatten().tolist() != list(_digest(tensors, metadata)):
        raise error(f"{path} is damaged: its digest is not that of its content. {remedy}")
    return tensors, metadata


def _digest(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bytes:
    import torch

    digest = hashlib.blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.digest()
