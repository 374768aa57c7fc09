"""Episodes of a finished evaluation as compressed columns: `episodes.parquet`.

Texts, numbers and booleans are columns of these types. Actions are lists of float32: all first
coordinates, then all second ones, since like numbers compress better side by side. Other values are
texts of JSON.
"""

import contextlib
import functools
import json
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet_tools.config.values import parse
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result import EpisodeResult, decode_actions, encode_actions
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.storage.locked_folder import RESTORE
from fleet_tools.storage.parquet_file import read_table, write_table
from fleet_tools.storage.strict_json import loads

_ACTIONS = "actions"


def write_episodes(path: Path, episodes: Sequence[EpisodeResult]) -> bool:
    """Stores episodes, completely or not at all.

    Returns:
        Whether the file holds them to the last bit. If they exceed the bounds of
        `storage.parquet_file`, it does not, and an existing file is unchanged.

    Raises:
        OSError: The disk is full or gone; likewise.
    """
    import pyarrow as pa

    with contextlib.suppress(_UnlikeError, OverflowError), atomic_write(path) as aside:
        rows = [_row(episode) for episode in episodes]
        columns = [pa.array([row[each.name] for row in rows], each.type) for each in _schema()]
        write_table(aside, pa.table(columns, schema=_schema()), [f"{_ACTIONS}.list.element"])
        try:
            stored = read_episodes(aside)
        except ResultError:
            raise _UnlikeError from None
        if [each.to_json() for each in stored] != [each.to_json() for each in episodes]:
            raise _UnlikeError
        return True
    return False


def read_episodes(path: Path) -> list[EpisodeResult]:
    """Reads the episodes of a file that `write_episodes` made.

    Raises:
        ResultError: It is missing or damaged.
    """
    table, episodes = read_table(path, _schema(), ResultError), list[EpisodeResult]()
    for batch in table.to_batches(max_chunksize=1000):
        actions = batch.column(_ACTIONS)
        ends, values = actions.offsets.to_numpy(), actions.values.to_numpy()
        rows = batch.drop_columns(_ACTIONS).to_pylist()
        for row, begin, end in zip(rows, ends[:-1], ends[1:], strict=True):
            which = f"{path}: episode {len(episodes) + 1}"
            try:
                for name, (kind, _) in _fields().items():
                    if kind not in _COLUMNS and row[name] is not None:
                        row[name] = loads(row[name])
                row[_ACTIONS] = encode_actions(values[begin:end].reshape(6, -1).T)
                episodes.append(parse(EpisodeResult, row, which))
            except ValueError as raised:  # ConfigError is one, too
                raise ResultError(f"{which} is damaged: {raised} {RESTORE}") from raised
    return episodes


class _UnlikeError(Exception):
    """A file does not hold what was stored in it."""


_COLUMNS = {str: "string", bool: "bool_", int: "int64", float: "float64"}
"""Functions of pyarrow that make the types of columns; other classes are stored as JSON."""


@functools.cache
def _fields() -> dict[str, tuple[Any, bool]]:
    """Returns the class of each field of an episode, and whether it may be None."""
    fields = {}
    for name, field in EpisodeResult.model_fields.items():
        optional = typing.get_origin(field.annotation) in (types.UnionType, typing.Union)
        kind = typing.get_args(field.annotation)[0] if optional else field.annotation
        fields[name] = getattr(kind, "__origin__", kind), optional  # without `Annotated`
    return fields


@functools.cache
def _schema() -> Any:
    import pyarrow as pa

    number = pa.field("element", pa.float32(), nullable=False)
    return pa.schema(
        pa.field(
            name,
            pa.list_(number) if name == _ACTIONS else getattr(pa, _COLUMNS.get(kind, "string"))(),
            nullable=optional,
        )
        for name, (kind, optional) in _fields().items()
    )


def _row(episode: EpisodeResult) -> dict[str, Any]:
    row = json.loads(episode.to_json())  # as in the log, where None stands for NaN
    row[_ACTIONS] = decode_actions(episode.actions).T.ravel()
    for name, (kind, _) in _fields().items():
        value = row.setdefault(name, EpisodeResult.model_fields[name].default)
        if kind not in _COLUMNS and value is not None:
            row[name] = json.dumps(value, ensure_ascii=False)
    return row
