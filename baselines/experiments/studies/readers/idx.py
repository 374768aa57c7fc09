"""IDX files: arrays of bytes, as MNIST and Fashion-MNIST are distributed, compressed or not.

http://yann.lecun.com/exdb/mnist describes the format: two zero bytes, the type (8: unsigned bytes),
the number of dimensions, their sizes as big-endian 32-bit integers, and the entries.
"""

import gzip
import zlib
from pathlib import Path

import numpy as np

from fleet_tools.errors import DatasetError

_LIMIT = 1 << 28
"""Largest number of entries that are read."""


def read_idx(folder: Path, name: str, dimensions: int) -> np.ndarray:
    """Reads an IDX file of unsigned bytes.

    Args:
        folder: Its folder.
        name: Its name without ".gz"; the compressed file is read where this one is missing.
        dimensions: Number of dimensions that it must have.

    Raises:
        DatasetError: It is missing, damaged or of another kind.
    """
    path = next((each for each in (folder / name, folder / f"{name}.gz") if each.is_file()), None)
    if path is None:
        raise DatasetError(f"{folder} holds neither {name} nor {name}.gz.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions or head[:4] != bytes([0, 0, 8, dimensions]):
                raise DatasetError(f"{path} is no IDX file of bytes in {dimensions} dimensions.")
            shape = tuple(int(size) for size in np.frombuffer(head[4:], ">u4"))
            count = int(np.prod([float(size) for size in shape]))
            if count > _LIMIT:
                raise DatasetError(f"{path} says that its shape is {shape}, too large to be read.")
            content = file.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from error
    if len(content) != count:
        more = "more" if len(content) > count else f"{len(content)}"
        raise DatasetError(f"{path} has {more} bytes after its head, and its shape is {shape}.")
    return np.frombuffer(content, np.uint8).reshape(shape)
