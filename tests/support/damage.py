"""Damage to datasets: bytes, structures of HDF5, values in JSON, and forged digests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fleet_tools.dataset.stored_episode import file_digest

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 7, 2**63, 10**40, 1e308, [], {}, [[]], {"a": 1}, [10**9, 10**9], [-1]),
    *("", "x", "../../x", "/etc/passwd", "episodes/\0.hdf5", "\ud800", "object", "i4,i4", "V8"),
)
"""Values that do not belong where they are put."""


def damaged(content: bytes, generator: np.random.Generator) -> bytes:
    """Returns bytes with some flipped, replaced, zeroed, removed or inserted, or an end missing."""
    changed = bytearray(content)
    kind = generator.integers(6)
    for _ in range(generator.choice([1, 1, 2, 20])):
        if not changed:
            break
        at, size = int(generator.integers(len(changed))), int(generator.integers(1, 64))
        match kind:
            case 0:
                changed[at] ^= 1 << int(generator.integers(8))
            case 1:
                changed[at] = int(generator.integers(256))
            case 2:
                changed[at : at + size] = bytes(len(changed[at : at + size]))
            case 3:
                del changed[at : at + size]
            case 4:
                changed[at:at] = generator.bytes(size)
            case 5:
                del changed[1 + at :]
    return bytes(changed)


def damaged_json(text: str, generator: np.random.Generator) -> str:
    """Returns JSON with one value removed, or replaced by one of `HOSTILE`."""
    data = json.loads(text)
    *way, last = list(_places(data))[generator.integers(sum(1 for _ in _places(data)))]
    parent = data
    for key in way:
        parent = parent[key]
    if generator.integers(4) == 0:
        del parent[last]
    else:
        parent[last] = HOSTILE[generator.integers(len(HOSTILE))]
    return json.dumps(data)


def rewrite_lines(path: Path, rewrite: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrites every line of a manifest."""
    lines = map(json.loads, path.read_text().splitlines())
    path.write_text("".join(f"{json.dumps(rewrite(line))}\n" for line in lines))


def relist(folder: Path, **others: Any) -> None:
    """Lists the episodes of a dataset with the digests of their present files, as a forger does."""

    def rewrite(line: dict[str, Any]) -> dict[str, Any]:
        return line | {"file_digest": file_digest(folder / line["file"])} | others

    rewrite_lines(folder / "manifest.jsonl", rewrite)


def replaced(group: h5py.Group, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Removes an array, and returns the shape and the dtype that it had."""
    array = group[name]
    assert isinstance(array, h5py.Dataset)
    layout = array.shape, array.dtype
    del group[name]
    return layout


def external_storage(group: h5py.Group, name: str, outside: Path) -> None:
    """Stores an array in another file, from which HDF5 reads raw bytes."""
    shape, dtype = replaced(group, name)
    size = int(np.prod(shape)) * dtype.itemsize
    group.create_dataset(name, shape, dtype, external=[(str(outside), 0, size)])


def external_link(group: h5py.Group, name: str, outside: Path) -> None:
    """Makes an array a link to another file."""
    shape, dtype = replaced(group, name)
    with h5py.File(outside.with_suffix(".hdf5"), "w") as file:
        file.create_dataset("x", shape, dtype)
    group[name] = h5py.ExternalLink(str(outside.with_suffix(".hdf5")), "x")


def virtual_array(group: h5py.Group, name: str, outside: Path) -> None:
    """Makes an array a view of one in another file."""
    shape, dtype = replaced(group, name)
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(str(outside.with_suffix(".hdf5")), "x", shape, dtype)
    group.create_virtual_dataset(name, layout)


def soft_link(group: h5py.Group, name: str, outside: Path) -> None:
    """Makes an array a soft link."""
    group.move(name, "elsewhere")
    group[name] = h5py.SoftLink(f"{group.name}/elsewhere")


def huge_shape(group: h5py.Group, name: str, outside: Path) -> None:
    """Declares an array of which no entry is stored."""
    shape, dtype = replaced(group, name)
    group.create_dataset(name, (10**12, *shape[1:]), dtype, chunks=(1, *shape[1:]))


def other_type(group: h5py.Group, name: str, outside: Path) -> None:
    """Changes the type of an array."""
    shape, dtype = replaced(group, name)
    group.create_dataset(name, shape, np.dtype(dtype).newbyteorder())


def text_array(group: h5py.Group, name: str, outside: Path) -> None:
    """Makes an array one of texts."""
    shape, _ = replaced(group, name)
    group.create_dataset(name, shape, h5py.string_dtype())


def a_group(group: h5py.Group, name: str, outside: Path) -> None:
    """Makes an array a group."""
    replaced(group, name)
    group.create_group(name)


def nothing(group: h5py.Group, name: str, outside: Path) -> None:
    """Removes an array."""
    replaced(group, name)


STRUCTURES = (
    external_storage,
    external_link,
    virtual_array,
    soft_link,
    huge_shape,
    other_type,
    text_array,
    a_group,
    nothing,
)


def _places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in pairs:
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*way, key))
