"""Safe reading of untrusted HDF5 files, which may not refer to other files.

HDF5 can name other places: links, external storage and virtual datasets lead to any file of the
machine, and filters load plugins. None of these is followed. Sizes that a file cannot hold are
refused before memory is taken. Nor is there a global heap, HDF5's place for texts of any length:
it has no checksums, and HDF5 2.0 reads a damaged one forever.
"""

import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5l, h5t, h5z  # pyright: ignore[reportAttributeAccessIssue]

from fleet_tools.errors import DatasetError

_ERRORS = (OSError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, MemoryError)
"""Errors of h5py on damaged files."""

_FILTERS = {h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE}

_HEAP = b"GCOL\x01\x00\x00\x00"
"""First bytes of a global heap."""

_MOST_DEFLATED = 1040
"""Largest number of bytes that a byte of gzip stands for, with some room."""


@contextmanager
def opened(path: Path) -> Iterator[h5py.Group]:
    """Opens the only group of a file; within the context, errors of HDF5 become `DatasetError`.

    Raises:
        DatasetError: The file is missing, damaged, or of another layout.
    """
    if not path.is_file():
        raise DatasetError(f"{path} is missing.")
    try:
        _require_no_heap(path)
        with h5py.File(path, "r") as file:
            (name,) = map(str, file)
            yield group_in(file, name)
    except _ERRORS as error:
        raise DatasetError(f"{path} is damaged or not an episode: {error}") from error


def group_in(parent: h5py.Group, name: str) -> h5py.Group:
    """Returns a group in another, which is no link.

    Raises:
        LookupError, TypeError: There is no such group.
    """
    found = _member(parent, name)
    if not isinstance(found, h5py.Group):
        raise TypeError(f"{name} is not a group")
    return found


def array_in(group: h5py.Group, name: str) -> h5py.Dataset:
    """Returns an array of numbers whose entries lie in the file.

    Args:
        group: A group.
        name: Name of the array, or its path below the group.

    Raises:
        LookupError, TypeError, ValueError: There is no such array.
    """
    *parents, last = name.split("/")
    for parent in parents:
        group = group_in(group, parent)
    array = _member(group, last)
    if not isinstance(array, h5py.Dataset):
        raise TypeError(f"{name} is not an array")
    if array.shape is None or array.dtype.kind not in "biuf":
        raise TypeError(f"{name} is not an array of numbers")
    _require_own_storage(array, name)
    return array


def text_of(group: h5py.Group, name: str) -> str:
    """Returns an attribute of a group that is text.

    Raises:
        LookupError, TypeError: There is no such attribute.
    """
    kind = group.attrs.get_id(name).get_type()
    if not isinstance(kind, h5t.TypeStringID) or kind.is_variable_str():
        raise TypeError(f"the attribute {name} is not a string of fixed length")
    value = group.attrs[name]
    if not isinstance(value, bytes):
        raise TypeError(f"the attribute {name} is not a single string")
    return value.decode()


def integer_of(group: h5py.Group, name: str) -> int:
    """Returns an attribute of a group that is an integer.

    Raises:
        LookupError, TypeError: There is no such attribute.
    """
    value = group.attrs[name]
    if not isinstance(value, np.integer):
        raise TypeError(f"the attribute {name} is not an integer")
    return int(value)


def _member(group: h5py.Group, name: str) -> object:
    if group.id.links.get_info(name.encode()).type != h5l.TYPE_HARD:
        raise ValueError(f"{name} is a link, and links are not followed")
    return group[name]


def _require_own_storage(array: h5py.Dataset, name: str) -> None:
    properties, stored = array.id.get_create_plist(), array.id.get_storage_size()
    size = math.prod(array.shape) * array.dtype.itemsize
    if properties.get_layout() == h5d.CONTIGUOUS:
        if properties.get_external_count() > 0:
            raise ValueError(
                f"{name} is stored in another file; only data in the file itself are read"
            )
        if size and (array.id.get_offset() is None or stored != size):
            raise ValueError(f"{name} is not stored completely")
        return
    if properties.get_layout() != h5d.CHUNKED:
        raise ValueError(f"{name} is a view of other arrays; only data in the file itself are read")
    filters = {properties.get_filter(k)[0] for k in range(properties.get_nfilters())}
    if not filters <= _FILTERS:
        raise ValueError(f"{name} is compressed by another method than gzip")
    if array.chunks != (1, *array.shape[1:]) or array.id.get_num_chunks() != len(array):
        raise ValueError(f"{name} is not stored row by row")
    if size > _MOST_DEFLATED * stored:
        raise ValueError(f"{name} claims more data than {stored} bytes of gzip can hold")


def _require_no_heap(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(_HEAP) >= 0:
            raise ValueError("it has a global heap, which no episode needs")
