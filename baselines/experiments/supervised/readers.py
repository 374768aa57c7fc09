"""Readers of the files of public datasets; none of them is a pickle.

IDX (http://yann.lecun.com/exdb/mnist) stores the byte arrays of MNIST and Fashion-MNIST, gzipped
or not. A file has two zero bytes, the type (8: unsigned bytes), the number of dimensions, their
sizes as big-endian 32-bit integers, and the entries.

CIFAR-10's binary version (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html) has, for
each image, a byte of its label and 3072 of its pixels.

LEAF (Caldas et al. 2018, https://leaf.cmu.edu) has examples by user. A file has the keys "users",
"num_samples" and "user_data"; the latter has "x" and "y" by user. In Shakespeare, "x" are texts
of 80 characters and "y" the characters that follow.
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.errors import DatasetError
from fleet_tools.storage.strict_json import loads

_MOST_ENTRIES = 1 << 28
"""Largest number of entries of an IDX file that are read."""

_LARGEST = 1 << 29
"""Largest size of a file of LEAF, bytes."""

PIXELS = 3 * 32 * 32
"""Number of numbers of an image of CIFAR-10."""

_LARGEST_BATCH = 64 << 20
"""Largest size of a batch of CIFAR-10, bytes; a genuine one has 31 MB."""


def read_idx(folder: Path, name: str, dimensions: int) -> np.ndarray:
    """Reads an IDX file of unsigned bytes.

    Args:
        folder: Its folder.
        name: Its name without ".gz"; the gzipped file is read if this one is missing.
        dimensions: Its expected number of dimensions.

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
                raise DatasetError(
                    f"{path} is not an IDX file of bytes with {dimensions} dimensions."
                )
            shape = tuple(int(size) for size in np.frombuffer(head[4:], ">u4"))
            count = int(np.prod([float(size) for size in shape]))
            if count > _MOST_ENTRIES:
                raise DatasetError(f"{path} says that its shape is {shape}, too large to be read.")
            content = file.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from error
    if len(content) != count:
        more = "more" if len(content) > count else f"{len(content)}"
        raise DatasetError(f"{path} has {more} bytes after its head, and its shape is {shape}.")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_leaf(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Reads all JSON files of a folder.

    Returns:
        Texts and the characters that follow them, by user, in the order of the files' names.

    Raises:
        DatasetError: There is no file, or one is damaged or of another kind.
    """
    spoken: dict[str, list[tuple[str, str]]] = {}
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DatasetError(f"{folder} holds no JSON file of LEAF. Give the folder of LEAF's data.")
    for path in paths:
        try:
            if path.stat().st_size > _LARGEST:
                raise DatasetError(f"{path} is larger than {_LARGEST >> 20} MiB.")
            content = loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{path} cannot be read: {error}.") from error
        for user, lines in _by_user(path, content).items():
            spoken.setdefault(user, []).extend(lines)
    return spoken


def _by_user(path: Path, content: Any) -> dict[str, list[tuple[str, str]]]:
    users = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(users, dict):
        raise DatasetError(f"{path} is not a file of LEAF: it has no user_data.")
    return {user: _lines(path, user, each) for user, each in users.items()}


def _lines(path: Path, user: str, examples: Any) -> list[tuple[str, str]]:
    if isinstance(examples, dict):
        texts, following = examples.get("x"), examples.get("y")
        if (
            isinstance(texts, list)
            and isinstance(following, list)
            and len(texts) == len(following)
            and all(isinstance(text, str) and text for text in texts)
            and all(isinstance(each, str) and len(each) == 1 for each in following)
        ):
            return list(zip(texts, following, strict=True))
    raise DatasetError(f"{path} has no texts with a character each of the user {user!r}.")


def read_cifar10(folder: Path) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Reads all batches of CIFAR-10's binary version.

    Args:
        folder: The folder `cifar-10-batches-bin`, or the one around it.

    Returns:
        Images (n, 3072) uint8 and labels (n,) for training, and the same for the test.

    Raises:
        DatasetError: A batch is missing or damaged.
    """
    for inner in (folder, folder / "cifar-10-batches-bin"):
        if (inner / "test_batch.bin").is_file():
            training = [_batch(inner / f"data_batch_{number}.bin") for number in range(1, 6)]
            images, labels = map(np.concatenate, zip(*training, strict=True))
            return (images, labels), _batch(inner / "test_batch.bin")
    raise DatasetError(f"{folder} holds no test_batch.bin of CIFAR-10's binary version.")


def _batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        if path.stat().st_size > _LARGEST_BATCH:
            raise DatasetError(f"{path} is larger than a batch of CIFAR-10 can be.")
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from error
    if not len(content) or len(content) % (PIXELS + 1):
        raise DatasetError(f"{path} is truncated: it does not hold a whole number of images.")
    rows = content.reshape(-1, PIXELS + 1)
    if rows[:, 0].max() > 9:
        raise DatasetError(f"{path} has labels outside of 0 to 9.")
    return rows[:, 1:], rows[:, 0].astype(np.int64)
