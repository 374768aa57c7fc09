"""LEAF's JSON (Caldas et al. 2018, https://leaf.cmu.edu): examples by user.

A file has the keys "users", "num_samples" and "user_data"; the latter has, by user, "x" and "y".
Of Shakespeare, "x" are texts of 80 characters and "y" the characters that follow.
"""

from pathlib import Path
from typing import Any

from fleet_tools.errors import DatasetError
from fleet_tools.storage.strict_json import loads

_LARGEST = 1 << 29
"""Largest size of a file, bytes."""


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
        raise DatasetError(f"{folder} holds no JSON file of LEAF.")
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
        raise DatasetError(f"{path} has no user_data, and is no file of LEAF.")
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
