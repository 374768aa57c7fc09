"""CIFAR-10's batches (Krizhevsky 2009), in the binary version or in that for Python.

https://www.cs.toronto.edu/~kriz/cifar.html describes both. The latter are pickles, and this is the
one place that reads any: the unpickler has stand-ins for what NumPy makes arrays of bytes with, and
refuses every other name.
"""

import io
import pickle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fleet_tools.errors import DatasetError

PIXELS = 3 * 32 * 32
_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)
_LARGEST = 64 << 20
"""Largest size of a batch's file, bytes; a genuine one has 31 MB."""


def read_cifar10(folder: Path) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Reads all batches.

    Args:
        folder: The folder `cifar-10-batches-py` or `cifar-10-batches-bin`, or the one around it.

    Returns:
        Images (n, 3072) uint8 and labels (n,) for training, and the same for the test.

    Raises:
        DatasetError: A batch is missing, damaged, or holds anything but images and labels.
    """
    known = ("", "cifar-10-batches-py", "cifar-10-batches-bin")
    for inner in (folder / name for name in known):
        for suffix, read in (("", _read_pickle), (".bin", _read_binary)):
            if (inner / f"{_TEST[0]}{suffix}").is_file():
                return tuple(
                    _joined([read(inner / f"{name}{suffix}") for name in names])
                    for names in (_TRAINING, _TEST)
                )
    raise DatasetError(f"{folder} holds neither test_batch nor test_batch.bin of CIFAR-10.")


def _joined(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise DatasetError(f"{path} is larger than a batch of CIFAR-10 can be.")
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from error


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = np.frombuffer(_content(path), np.uint8)
    if not len(content) or len(content) % (PIXELS + 1):
        raise DatasetError(f"{path} has no whole number of images.")
    rows = content.reshape(-1, PIXELS + 1)
    return _checked(path, rows[:, 1:], rows[:, 0])


def _read_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _ArrayUnpickler(io.BytesIO(_content(path)), encoding="bytes").load()
    except DatasetError as error:
        raise DatasetError(f"{path} is refused: {error}") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise DatasetError(f"{path} is no batch of CIFAR-10: {error!r}.") from error
    if not isinstance(batch, dict):
        raise DatasetError(f"{path} holds no batch of CIFAR-10, but {type(batch).__name__}.")
    images, labels = (batch.get(name, batch.get(name.decode())) for name in (b"data", b"labels"))
    if not isinstance(images, _Array):
        raise DatasetError(f"{path} holds no array of bytes named 'data'.")
    if not isinstance(labels, list) or not all(type(each) is int for each in labels):
        raise DatasetError(f"{path} holds no list of numbers named 'labels'.")
    try:
        return _checked(path, images.array(), np.array(labels))
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: {error}.") from error


def _checked(path: Path, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if images.ndim != 2 or images.shape != (len(labels), PIXELS):
        raise DatasetError(f"{path} has {len(labels)} labels, and images {images.shape}.")
    if not len(labels) or labels.min() < 0 or labels.max() > 9:
        raise DatasetError(f"{path} has labels that are none of 0 to 9.")
    return images, labels.astype(np.int64)


class _Dtype:
    """Stands for the type of an array."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1"):
            raise DatasetError(f"it makes an array of {name!r}, and not of bytes.")

    def __setstate__(self, state: Any) -> None:
        """Ignores the rest: bytes have no order."""


class _Array:
    """Stands for an array, and keeps what NumPy would make it of."""

    shape: tuple[int, ...] = ()
    content: bytes = b""
    order: Literal["C", "F"] = "C"

    def __setstate__(self, state: Any) -> None:
        """Takes version, shape, type, order and content."""
        _, shape, dtype, fortran, content = state
        sizes = isinstance(shape, tuple) and all(type(size) is int for size in shape)
        if not sizes or not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise DatasetError("it makes something other than an array of bytes.")
        self.shape, self.content, self.order = shape, content, "F" if fortran else "C"

    def array(self) -> np.ndarray:
        """Returns the array.

        Raises:
            ValueError: The content does not fill its shape.
        """
        return np.frombuffer(self.content, np.uint8).reshape(self.shape, order=self.order)


class _ArrayClass:
    """Stands for the class of arrays, which a pickle names and does not call."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: Any, encoding: Any = None) -> bytes:
    if encoding not in ("latin1", b"latin1") or not isinstance(text, str):
        raise DatasetError("it encodes something other than bytes.")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ArrayClass,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}
"""What a pickle may name, and what stands for it: nothing of NumPy itself."""


class _ArrayUnpickler(pickle.Unpickler):
    """Makes containers, numbers, strings and arrays of bytes, and nothing else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Returns what stands for a name.

        Raises:
            DatasetError: It is none of the known ones.
        """
        name = module_name, global_name
        if name not in _KNOWN:
            raise DatasetError(f"it names {module_name}.{global_name}, which no batch needs.")
        return _KNOWN[name]
