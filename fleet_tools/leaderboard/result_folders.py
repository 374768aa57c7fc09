"""Folders of results that others submitted, whatever else they left there; names of methods."""

import contextlib
import os
import re
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.dataset.carried_models import MODELS
from fleet_tools.evaluation.result_folder import EPISODES, PACKED, RESULT
from fleet_tools.leaderboard.checks import ProblemKind
from fleet_tools.leaderboard.records import CERTIFIED, VERIFIED
from fleet_tools.policies.sources import built_in_description

README = "README.md"
COMMANDS = "commands.yaml"
_OTHER_FILES = (README, COMMANDS, ".gitkeep")

_LONGEST_QUOTE = 300  # characters of an error message, which may quote a damaged file


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_RULE = "at most 64 letters, digits and . _ + - of ASCII, of which the first is a letter or a digit"

_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "5": "s", **dict.fromkeys("._+-")})
_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


@dataclass(frozen=True)
class Rejection:
    """A rejected result, or a rejected file.

    Attributes:
        folder: Path of the folder within the folder of all results.
        kind: Kind of problem.
        reason: The problem in words.
    """

    folder: str
    kind: ProblemKind
    reason: str


def find_result_folders(root: Path) -> tuple[list[Path], list[Rejection]]:
    """Returns the folders of results, and a rejection of each file that is not part of one.

    A folder with anything in it that is neither a file of a result nor a comment is no result;
    other folders are not affected.
    """
    folders: set[Path] = set()
    spoilt: set[Path] = set()
    rejections: list[Rejection] = []
    for folder, subfolders, files in os.walk(root):
        for name in sorted([*subfolders, *files]):
            path = Path(folder, name)
            reason = _objection(path, root)
            if reason is not None:
                spoilt.add(path.parent)
                inside = printable(path.relative_to(root).parent.as_posix())
                rejections.append(Rejection(inside, "foreign", f"{printable(name)} {reason}"))
            elif name in (RESULT, EPISODES, PACKED):
                folders.add(path.parent)
        # Models that a result carries are not used here: the host has those of its protocol.
        carried = {MODELS} if RESULT in files else set()
        subfolders[:] = [n for n in subfolders if printable(n) == n and n not in carried]
    return sorted(folders - spoilt), rejections


def method_folder(folder: str, root: Path) -> str:
    """Returns the folder that holds all results of a method, within the folder of all results.

    Args:
        folder: Folder of one of its results there; "." for the folder of all results itself.
        root: The folder of all results.
    """
    parts = Path(folder).parts
    return parts[0] if parts else root.resolve().name


def description(folder: Path, root: Path) -> str:
    """Returns the heading of the nearest README.md above a result, below the root."""
    relative = folder.relative_to(root)
    for candidate in [relative, *relative.parents][:-1]:
        path = root / candidate / README
        if path.is_file() and not path.is_symlink():
            with (
                contextlib.suppress(OSError),
                path.open(encoding="utf-8", errors="replace") as file,
            ):
                line = file.read(_LONGEST_QUOTE).strip().partition("\n")[0]
                return " ".join("".join(filter(str.isprintable, line.lstrip("#"))).split())
    return ""


def name_problem(name: str, kind: str, folder: str) -> str | None:
    """Returns why a method may not have its name; None if it may.

    Args:
        name: The name.
        kind: Kind of the policy, see `PolicyProvenance`.
        folder: First folder of its results within the folder of all results.
    """
    if not _NAME.fullmatch(name):
        return f"the name {name[:64]!r} is not valid: {_RULE}"
    if name != folder:
        return f"the name is {name!r}, but the results are in the folder {folder[:64]!r}"
    if kind != "built_in" and built_in_description(name):
        return f"{name!r} is the name of a policy of the package, which this one is not"
    return None


def likeness(name: str) -> str:
    """Returns a text that is the same for names that readers could mistake for each other."""
    text = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    for pair, letter in _ALIKE_PAIRS:
        text = text.replace(pair, letter)
    return text


def printable(text: str) -> str:
    """Returns text, such as a file's name, that can be written to any page or terminal."""
    return shortened("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text))


def shortened(text: str) -> str:
    """Returns text in one line of bearable length."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]} ..."


def _objection(path: Path, root: Path) -> str | None:
    """Returns what is wrong with a file or folder; None if nothing is."""
    if printable(path.name) != path.name:
        return "is a name that cannot be shown"
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISLNK(mode):
        return "is a link"
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        return "is no regular file"
    records = (root / VERIFIED, root / CERTIFIED)
    if path.name in (RESULT, EPISODES, PACKED, *_OTHER_FILES) or path in records:
        return None
    return f"is not part of a result ({RESULT}, {PACKED}, {EPISODES}, {README} or {COMMANDS})"
