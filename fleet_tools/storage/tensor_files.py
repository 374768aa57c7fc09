"""Reads and writes tensors in safetensors files.

Files appear complete or not at all, hold no code, and may carry a text beside the tensors, and a
digest of both. Messages between processes have the same format, see `merging.queries.wire`.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.atomic_files import write_file

_DIGEST = "digest"
"""Name of the tensor with the digest, which no other tensor may have."""

T = TypeVar("T")


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None) -> None:
    """Stores tensors; equal tensors and metadata give equal bytes.

    The library's own `save_file` is not used: a kill leaves its temporary file, which no
    `atomic_files.leftovers` finds.

    Args:
        path: The file; an existing one is replaced.
        tensors: PyTorch's, on any device; they may share memory, as tied weights do.
        metadata: One entry at most: the library stores several in random order.

    Raises:
        OSError: The disk is full or gone; an existing file is unchanged.
    """
    import torch
    from safetensors.torch import save

    packed = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    write_file(path, save(packed, metadata))


@contextlib.contextmanager
def opened(
    path: str | Path,
    error: type[Exception],
    remedy: str,
    what: str = "safetensors file",
    framework: Literal["pt", "numpy"] = "pt",
) -> Iterator[Any]:
    """Opens a safetensors file; tensors and metadata are read on request.

    Args:
        path: The file.
        error: Class of the error raised.
        remedy: What can be done about a file that cannot be read, for the error message.
        what: What the file should be, for the error message.
        framework: Library whose arrays its tensors become; "numpy" does not import PyTorch.

    Raises:
        FleetToolsError: The file is missing or is not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework) as file:
            yield file
    # KeyError: a dtype that PyTorch lacks
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as raised:
        if isinstance(raised, FleetToolsError):
            raise
        raise error(f"{path} is not a {what}: {raised}. {remedy}") from None


def read_tensors(
    path: str | Path, error: type[Exception], remedy: str, what: str = "safetensors file"
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the tensors of a file, in memory of their own, and its metadata; see `opened`."""
    with opened(path, error, remedy, what) as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def write_checked(path: Path, key: str, tensors: Mapping[str, Any], text: str) -> None:
    """Stores tensors and a text with a digest of both; see `write_tensors`.

    Args:
        path: The file; an existing one is replaced.
        key: Key of the text, which says what the file is.
        tensors: The tensors.
        text: The text, such as JSON.
    """
    import torch

    metadata = {key: text}
    digest = torch.frombuffer(bytearray(_digest(tensors, metadata)), dtype=torch.uint8)
    write_tensors(path, {**tensors, _DIGEST: digest}, metadata)


def read_checked(
    path: Path,
    key: str,
    make: Callable[[dict[str, Any], str], T],
    error: type[Exception],
    remedy: str = "",
) -> T:
    """Reads a file of `write_checked`.

    Args:
        path: The file.
        key: As it was stored.
        make: Returns the value of the tensors and the text; if it raises, the file is damaged.
        error: Class of the error raised.
        remedy: What can be done about a damaged file, for the error message.

    Raises:
        FleetToolsError: The file is missing, is not a safetensors file, differs from what was
            stored, or there is no such value.
    """
    tensors, metadata = read_tensors(path, error, remedy)
    digest = tensors.pop(_DIGEST, None)
    if digest is None or digest.flatten().tolist() != list(_digest(tensors, metadata)):
        raise error(f"{path} is damaged: its digest does not match its content. {remedy}")
    try:
        return make(tensors, metadata[key])
    except (KeyError, TypeError, ValueError, RecursionError) as raised:
        raise error(f"{path} is damaged ({raised!r}). {remedy}") from None


def _digest(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    import torch

    digest = hashlib.blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.digest()
