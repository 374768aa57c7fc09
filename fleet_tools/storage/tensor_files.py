"""Tensors in safetensors files, which appear complete or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_tools.storage.atomic_files import atomic_write


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

    with atomic_write(path) as aside:
        aside.write_bytes(save(dict(tensors), metadata))
