"""Damaged files of training runs and fleets, as a failing disk or a mistaken edit leaves them."""

import copy
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from fleet_tools.storage.tensor_files import write_checked

Damaged = tuple[str, bytes | None]
"""What was done to a file, and what it holds now; None if it is gone."""

_VALUES: tuple[Any, ...] = (None, -1, 10**6, 1e400, float("nan"), "x", [], {})
"""Wrong values of an entry of a JSON document."""


def damaged_bytes(content: bytes, flips: int = 8) -> Iterator[Damaged]:
    """Damages any file."""
    size = len(content)
    yield "gone", None
    yield "empty", b""
    yield "another file", b"\x89PNG\r\n\x1a\n" + content[8:]
    yield "twice", content * 2
    yield "one byte more", content + b"\0"
    for part in (1, 7, size // 2, size - 1):
        yield f"the first {part} bytes", content[:part]
    for index in range(flips):
        place = (2 * index + 1) * size // (2 * flips)
        flipped = content[place] ^ (1 << index % 8)
        yield f"bit flipped at {place}", content[:place] + bytes([flipped]) + content[place + 1 :]
    zeros = min(64, size // 2)
    yield "zeros at the end", content[: size - zeros] + bytes(zeros)


def damaged_state(content: bytes) -> Iterator[Damaged]:
    """Damages a state: its bytes, tensors and metadata."""
    yield from damaged_bytes(content)
    yield from damaged_tensors(content)
    yield from damaged_metadata(content)


def damaged_json(data: Any) -> Iterator[tuple[str, Any]]:
    """Damages plain data: each of its first entries at every place is wrong or missing."""
    for place in _places(data):
        original = _at(data, place)
        neighbours = (original + 1,) if isinstance(original, int | float) else ()
        for value in (*neighbours, *_VALUES):
            changed = copy.deepcopy(data)
            _at(changed, place[:-1])[place[-1]] = value
            yield f"{_dotted(place)} = {value!r}", changed
        changed = copy.deepcopy(data)
        del _at(changed, place[:-1])[place[-1]]
        yield f"{_dotted(place)} removed", changed


def damaged_tensors(content: bytes) -> Iterator[Damaged]:
    """Damages the tensors of a safetensors file; its metadata stay."""
    metadata = metadata_of(content)
    whole = load(content)
    for name, tensor in whole.items():
        numbers = tensor if tensor.is_floating_point() else tensor.float()
        changes = {
            "removed": {},
            "renamed": {f"{name}x": tensor},
            "NaN": {name: torch.full_like(numbers, float("nan"))},
            "infinite": {name: torch.full_like(numbers, float("inf"))},
            "negative": {name: -numbers - 1},
            "nudged": {name: numbers * (1 + 1e-6) + 1e-9},
            "float64": {name: tensor.double()},
            "longer": {name: torch.stack([tensor, tensor])},
            "beside another": {name: tensor, "other": tensor.clone()},
        }
        rest = {key: value for key, value in whole.items() if key != name}
        for what, change in changes.items():
            yield f"{name} {what}", save({**rest, **change}, metadata)


def damaged_metadata(content: bytes) -> Iterator[Damaged]:
    """Damages the metadata of a safetensors file, one entry of JSON; its tensors stay."""
    tensors, metadata = load(content), metadata_of(content)
    ((key, text),) = metadata.items()
    yield "no metadata", save(tensors)
    yield "metadata of another kind", save(tensors, {"other": text})
    yield "metadata that are not JSON", save(tensors, {key: text[:-1]})
    yield "metadata nested deeply", save(tensors, {key: "[" * 100_000})
    for what, data in damaged_json(json.loads(text)):
        yield what, save(tensors, {key: json.dumps(data)})


def without_digest(content: bytes) -> bytes:
    """Returns a state without the digest of its content."""
    tensors = load(content)
    del tensors["digest"]
    return save(tensors, metadata_of(content))


def with_digest(content: bytes, path: Path) -> bytes:
    """Returns a state with the digest of what it holds now, as a forger writes it to a path."""
    ((key, text),) = (metadata_of(content) or {"": ""}).items()
    write_checked(path, key, load(content), text)
    return path.read_bytes()


def metadata_of(content: bytes) -> dict[str, str]:
    """Returns the metadata of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]).get("__metadata__", {})


def _places(data: Any, before: tuple = ()) -> Iterator[tuple]:
    keys = list(data) if isinstance(data, dict) else range(len(data))
    for key in keys if isinstance(data, dict) else sorted({*keys[:1], *keys[-1:]}):
        yield (*before, key)
        if isinstance(data[key], dict | list):
            yield from _places(data[key], (*before, key))


def _at(data: Any, place: tuple) -> Any:
    for key in place:
        data = data[key]
    return data


def _dotted(place: tuple) -> str:
    return ".".join(map(str, place))


def write_files(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Makes a folder consist of some files; None is left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        if content is not None:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
