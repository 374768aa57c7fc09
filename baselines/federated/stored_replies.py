"""Replies of robots in files, with a digest that tells a damaged one."""

from pathlib import Path

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import unpacked
from fleet_tools.storage.tensor_files import read_checked, write_checked


def store_reply(path: Path, reply: bytes) -> None:
    """Stores a reply, completely or not at all."""
    write_checked(path, unpacked(reply, "reply"), None)


def read_reply(path: Path) -> bytes | None:
    """Returns a stored reply; None if it is absent or damaged, and has to be requested again."""
    from safetensors.torch import save

    try:
        return save(read_checked(path, MessageError)[0])
    except MessageError:
        return None
