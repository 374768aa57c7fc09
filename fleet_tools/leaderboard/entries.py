"""Safe reading of submitted entries, the folders `entries/NAME`.

entry.yaml                the method, see `EntryFile`
README.md                 its training in words
policy*.py                code of policies that are named as module:factory
checkpoints/*.safetensors weights
results/LEVEL/...         results of `evaluate` at a level of the protocol, by the submitter
"""

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic

from fleet_tools.config.commands import Commands, DataCommands
from fleet_tools.config.values import MisfitError, Seed, Value, load_yaml
from fleet_tools.dataset.carried_models import MODELS
from fleet_tools.errors import ConfigError, ResultError, shown
from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.leaderboard.board import Rejection, Track
from fleet_tools.policies.sources import built_in_description, is_address

ENTRY = "entry.yaml"
CHECKPOINTS = "checkpoints"
RESULTS = "results"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_CHECKPOINT = re.compile(r"checkpoints/[A-Za-z0-9][A-Za-z0-9._+-]*\.safetensors", re.ASCII)
_FACTORY = re.compile(r"(policy\w*):(\w+)", re.ASCII)
_FILES = (
    re.compile(r"entry\.yaml|README\.md|policy\w*\.py|\.gitkeep", re.ASCII),
    _CHECKPOINT,
    re.compile(r"results/.*(result\.json|episodes\.(jsonl|parquet)|begun\.txt|README\.md)"),
)
"""Files of an entry, by their paths in it."""

_LONGEST_QUOTE = 300  # characters of an error message, which may quote a damaged file
_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "5": "s", **dict.fromkeys(" ._+-")})
_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


def _line(text: str) -> str:
    if not text.isprintable() or text != " ".join(text.split()):
        raise ValueError("expected a single line of printable characters")
    return text


_Line = Annotated[str, pydantic.AfterValidator(_line)]


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "expected at most 64 ASCII letters, digits and . _ + -, beginning with a letter or a "
            "digit"
        )
    return name


class EntryPolicy(Value):
    """A policy of an entry.

    Attributes:
        tasks: The tasks in which it acts.
        policy: `checkpoints/NAME.safetensors`, `policy:factory` with the code in `policy.py` of the
            entry's folder, the address of a server, or the name of a policy of the package.
        training_seed: Seed of its training run, if there are several.
    """

    tasks: Literal["all"] | Annotated[tuple[str, ...], pydantic.Field(min_length=1)] = "all"
    policy: str
    training_seed: Seed | None = None

    @pydantic.model_validator(mode="after")
    def _runs_here(self) -> Self:
        kinds = (_CHECKPOINT.fullmatch, _FACTORY.fullmatch, is_address, built_in_description)
        if not any(kind(self.policy) for kind in kinds):
            raise MisfitError(
                "policy",
                f"{shown(self.policy)} is not a policy of an entry: expected "
                "checkpoints/NAME.safetensors, policy:factory (with policy.py in the entry's "
                "folder), ws://HOST:PORT (a server), or a policy of the package. Copy all files of "
                "the policy into the folder",
            )
        return self

    def covers(self, task: str) -> bool:
        """Returns whether it acts in a task."""
        return self.tasks == "all" or task in self.tasks


class EntryFile(Value):
    """The content of `entry.yaml`.

    Attributes:
        name: Name of the method and of its folder.
        title: The same in words.
        description: One line.
        track: What its policies read; the host's run shows it.
        policies: Its policies; none for results that are self-reported.
        commands: Commands that train and evaluate them.
        data_commands: Commands that make their data; or the entry whose data they use.
    """

    name: Annotated[str, pydantic.AfterValidator(_name)]
    title: Annotated[_Line, pydantic.Field(min_length=1, max_length=80)]
    description: Annotated[_Line, pydantic.Field(max_length=200)]
    track: Track
    policies: tuple[EntryPolicy, ...] = ()
    commands: Commands = ()
    data_commands: DataCommands = ()

    @pydantic.model_validator(mode="after")
    def _one_policy_a_task(self) -> Self:
        for number, policy in enumerate(self.policies):
            for other in self.policies[:number]:
                both = "all" in (policy.tasks, other.tasks) or {*policy.tasks} & {*other.tasks}
                if both and policy.training_seed == other.training_seed:
                    raise MisfitError(
                        f"policies.{number}",
                        "two policies have the same training seed and the same task; remove one",
                    )
        return self


@dataclass(frozen=True)
class Entry:
    """An entry.

    Attributes:
        folder: Its folder.
        file: Content of `entry.yaml`.
    """

    folder: Path
    file: EntryFile

    @property
    def name(self) -> str:
        """Its name."""
        return self.file.name

    @cached_property
    def contents(self) -> dict[EntryPolicy, str]:
        """Hash of what each policy is made from, whatever its files are called."""
        return {policy: self._content(policy) for policy in self.file.policies}

    @property
    def digests(self) -> dict[EntryPolicy, str]:
        """Hash of each policy, with its tasks and training seed."""
        return {each: _hash(each.to_json(), content) for each, content in self.contents.items()}

    @property
    def digest(self) -> str:
        """Hash of all that a host runs; title, description and order do not matter."""
        return _hash(self.name, *sorted(self.digests.values()))

    def source(self, policy: EntryPolicy) -> str:
        """Returns how `find_policy` names a policy."""
        is_file = _CHECKPOINT.fullmatch(policy.policy)
        return str(self.folder / policy.policy) if is_file else policy.policy

    def result_folders(self) -> list[Path]:
        """Returns the folders of results, in order."""
        return sorted(path.parent for path in (self.folder / RESULTS).rglob(RESULT))

    def _content(self, policy: EntryPolicy) -> str:
        if _CHECKPOINT.fullmatch(policy.policy):
            return hashlib.sha256((self.folder / policy.policy).read_bytes()).hexdigest()
        files: list[Path] = []
        if _FACTORY.fullmatch(policy.policy):  # its code may read any of them
            files = sorted([*self.folder.glob("policy*.py"), *self.folder.glob(f"{CHECKPOINTS}/*")])
        contents = [f"{f.name} {hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files]
        return _hash(policy.policy, *contents)


def _hash(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def read_entry(folder: Path) -> Entry:
    """Reads an entry, and checks that its folder holds nothing else.

    Raises:
        ResultError: There is none, a file of it is missing or foreign, or `entry.yaml` is not
            valid.
    """
    if not (folder / ENTRY).is_file():
        raise ResultError(
            f"{folder} has no {ENTRY}, so there is no policy to run. Write this file "
            "(docs/benchmark/submitting.md), or keep your own results elsewhere."
        )
    if foreign := "; ".join(_foreign(folder)):
        raise ResultError(f"{folder} is not an entry: {foreign}.")
    try:
        file = load_yaml(EntryFile, folder / ENTRY)
    except ConfigError as error:
        raise ResultError(shortened(str(error))) from error
    if file.name != folder.resolve().name:
        raise ResultError(
            f"{folder / ENTRY} has the name {file.name!r}, but its folder has another. Rename one "
            "of them."
        )
    if built_in_description(file.name) and any(p.policy != file.name for p in file.policies):
        raise ResultError(
            f"{file.name!r} is the name of a policy of the package, but {folder} has a different "
            "policy. Choose another name."
        )
    for policy in file.policies:
        factory = _FACTORY.fullmatch(policy.policy)
        path = folder / (f"{factory[1]}.py" if factory else policy.policy)
        if (factory or _CHECKPOINT.fullmatch(policy.policy)) and not path.is_file():
            raise ResultError(f"{folder} names {policy.policy}, but there is no {path}. Add it.")
    return Entry(folder, file)


def read_entries(root: Path) -> tuple[list[Entry], list[Rejection]]:
    """Reads all entries of a leaderboard, and rejects other folders.

    Args:
        root: Folder of the leaderboard.

    Raises:
        ResultError: It has no folder of entries.
    """
    parent = root / "entries"
    if not parent.is_dir():
        raise ResultError(
            f"{root} has no folder named entries. Give the folder of a leaderboard; it holds each "
            f"entry as entries/NAME with a {ENTRY}."
        )
    entries, rejections = [], []
    for folder in sorted(path for path in parent.iterdir() if path.is_dir() or path.is_symlink()):
        inside = f"entries/{printable(folder.name)}"
        try:
            if folder.is_symlink():
                raise ResultError(
                    "The folder is a link, and links are not followed. Replace it by a copy."
                )
            entries.append(read_entry(folder))
        except ResultError as error:
            rejections.append(Rejection(inside, shortened(str(error).replace(f"{root}/", ""))))
    return entries, rejections


def without_imitations(
    entries: Sequence[Entry], order: Sequence[str]
) -> tuple[list[Entry], list[Rejection]]:
    """Rejects entries whose name or title readers could mistake for another one's.

    Args:
        entries: The entries.
        order: Names in the order in which the host received them; others come after these.
    """
    taken: dict[str, str] = {}
    kept, rejections = [], []
    place = {name: number for number, name in enumerate(order)}
    for entry in sorted(entries, key=lambda e: (place.get(e.name, len(place)), e.name)):
        own = {likeness(entry.name), likeness(entry.file.title)}
        other = next((taken[each] for each in own if each in taken), None)
        if other is None:
            taken |= dict.fromkeys(own, entry.name)
            kept.append(entry)
        else:
            reason = f"its name or title could be mistaken for that of {other!r}; choose another"
            rejections.append(Rejection(f"entries/{entry.name}", reason))
    return sorted(kept, key=lambda entry: entry.name), rejections


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


def _foreign(folder: Path) -> Iterator[str]:
    """Yields what in a folder is no part of an entry."""
    for parent, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            mode, inside = path.lstat().st_mode, path.relative_to(folder).as_posix()
            if stat.S_ISLNK(mode):
                yield f"{printable(inside)} is a link"
            elif not stat.S_ISDIR(mode) and not (
                stat.S_ISREG(mode) and any(each.fullmatch(inside) for each in _FILES)
            ):
                yield (
                    f"{printable(inside)} does not belong to an entry (allowed: entry.yaml, "
                    "README.md, policy*.py, checkpoints/*.safetensors, results of evaluate below "
                    "results/LEVEL)"
                )
        # Models that a result carries are not used here: the host has those of its protocol.
        folders[:] = [name for name in folders if name != MODELS or RESULT not in files]
