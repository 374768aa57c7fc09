"""Reads results that others submitted, and rejects those with claims that cannot be confirmed.

    DIR/any/folders/NAME/result.json, episodes.jsonl       a result, identified by its folder
    DIR/any/folders/README.md                              comments; the first line says on the
                                                           page what the method is

Each result covers one or more complete tasks of the protocol, in all splits.
"""

import contextlib
import functools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.evaluation.admission import missing_scenes
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import Evaluation, PolicyProvenance
from fleet_tools.evaluation.result_file import EPISODES, EVALUATION, RESULT, in_order
from fleet_tools.leaderboard.checks import Problem, ProblemKind, find_problems
from fleet_tools.storage.json_documents import read_version

_README = "README.md"
_VERSION_FOLDER = re.compile(r"v\d+")
_OTHER_FILES = (_README, ".gitkeep")

_LONGEST_QUOTE = 300  # characters of an error message, which may quote a damaged file


@dataclass(frozen=True)
class Submission:
    """A result without problems.

    Attributes:
        folder: Path of its folder within the folder of all results.
        evaluation: The result, with its episodes in the protocol's order.
        missing: What an incomplete result lacks, see `missing_scenes`; empty for a complete one.
        description: What the method is, by the heading of the nearest README.md; empty if none.
    """

    folder: str
    evaluation: Evaluation
    missing: str = ""
    description: str = ""

    @property
    def protocol(self) -> Protocol:
        """The protocol by which it was evaluated."""
        return self.evaluation.result.protocol

    @property
    def protocol_digest(self) -> str:
        """Hash of the protocol and its task files."""
        return self.evaluation.result.protocol_digest

    @property
    def policy(self) -> PolicyProvenance:
        """The evaluated policy."""
        return self.evaluation.result.policy

    @functools.cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it covers."""
        return tuple(dict.fromkeys(episode.task for episode in self.evaluation.episodes))


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


def read_submissions(
    root: Path, protocol: Protocol, former: Collection[str] = (), *, preview: bool = False
) -> tuple[list[Submission], list[Rejection]]:
    """Reads and checks all results below a folder, in the order of their names.

    Args:
        root: The folder.
        protocol: The protocol that all results have to follow.
        former: Hashes of its former versions, which results may follow instead.
        preview: Whether results by the protocol whose only problem is that they are incomplete
            are among those returned, with what is missing, and not rejected.

    Raises:
        ResultError: There is no such folder.
    """
    if not root.is_dir():
        raise ResultError(f"There is no folder {root}. Give one that holds folders of results.")
    folders, rejections = _result_folders(root)
    submissions = []
    for folder in folders:
        name = folder.relative_to(root).as_posix()
        evaluation, problems = _read(folder, protocol, former)
        missing = ""
        if preview and evaluation is not None and _only_incomplete(evaluation, problems, former):
            missing, problems = _missing_text(evaluation, problems), []
        if evaluation is not None and not problems:
            submissions.append(Submission(name, evaluation, missing, _description(folder, root)))
        rejections += [Rejection(name, *problem) for problem in problems]
    rejections += list(_duplicates([each for each in submissions if not each.missing]))
    rejected = {rejection.folder for rejection in rejections}
    accepted = [submission for submission in submissions if submission.folder not in rejected]
    return accepted, sorted(rejections, key=lambda rejection: rejection.folder)


def read_checked(
    folder: Path, protocol: Protocol, former: Collection[str] = ()
) -> Evaluation | list[Problem]:
    """Reads a result of any known schema version, and checks every claim of it.

    Args:
        folder: Folder of the result.
        protocol: The protocol that it has to follow.
        former: Hashes of its former versions, which it may follow instead.

    Returns:
        The result, with its episodes in the protocol's order; or all its problems.
    """
    evaluation, problems = _read(folder, protocol, former)
    return problems if evaluation is None else problems or evaluation


def _read(
    folder: Path, protocol: Protocol, former: Collection[str]
) -> tuple[Evaluation | None, list[Problem]]:
    """Returns a result and its problems; None if it cannot be read, or has unknown episodes."""
    known_versions = sorted({*EVALUATION.upgrades, EVALUATION.version})
    try:
        _require_complete_lines(folder / RESULT)
        version = read_version(folder / RESULT, ResultError)
        if type(version) is not int or version not in known_versions:
            listing = " and ".join(map(str, known_versions))
            reason = f"its schema version is {version!r}; this version of Fleet-Tools reads"
            return None, [Problem("schema", _shortened(f"{reason} {listing}"))]
        result = EVALUATION.read_document(folder)
        _require_complete_lines(folder / EPISODES)
        episodes, _ = EVALUATION.read_records(folder)
    except (FleetToolsError, RecursionError) as error:
        return None, [Problem("damaged", _shortened(str(error).replace(f"{folder}/", "")))]
    problems = find_problems(result, episodes, protocol, former)
    if any(problem.kind != "incomplete" for problem in problems):
        return None, problems
    episodes = in_order(result.protocol, episodes, folder / EPISODES)
    return Evaluation(result, episodes), problems


def _only_incomplete(
    evaluation: Evaluation, problems: Sequence[Problem], former: Collection[str]
) -> bool:
    """Returns whether a result of the present protocol is incomplete, and nothing else."""
    return bool(problems) and evaluation.result.protocol_digest not in former


def _missing_text(evaluation: Evaluation, problems: Sequence[Problem]) -> str:
    keys = {episode.key for episode in evaluation.episodes}
    missing = missing_scenes(evaluation.result.protocol, keys)
    return f"only {missing}" if missing else problems[0].reason


def _description(folder: Path, root: Path) -> str:
    """Returns the heading of the nearest README.md above a result, below the root.

    Results of a former version, as `v1/METHOD`, may be described in `METHOD`.
    """
    relative = folder.relative_to(root)
    candidates = [relative, *relative.parents][:-1]
    if _VERSION_FOLDER.fullmatch(relative.parts[0]):
        relative = relative.relative_to(relative.parts[0])
        candidates += [relative, *relative.parents][:-1]
    for candidate in candidates:
        path = root / candidate / _README
        if path.is_file() and not path.is_symlink():
            with (
                contextlib.suppress(OSError),
                path.open(encoding="utf-8", errors="replace") as file,
            ):
                line = file.read(_LONGEST_QUOTE).strip().partition("\n")[0]
                return " ".join("".join(filter(str.isprintable, line.lstrip("#"))).split())
    return ""


def _result_folders(root: Path) -> tuple[list[Path], list[Rejection]]:
    """Returns the folders of results, and a rejection of each file that is not part of one."""
    folders: set[Path] = set()
    rejections: list[Rejection] = []
    for path in sorted(root.rglob("*")):
        folder = path.relative_to(root).parent.as_posix()
        if path.is_symlink():
            rejections.append(Rejection(folder, "foreign", f"{path.name} is a link"))
        elif path.is_file() and path.name in (RESULT, EPISODES):
            folders.add(path.parent)
        elif path.is_file() and path.name not in _OTHER_FILES:
            reason = f"{path.name} is not part of a result ({RESULT}, {EPISODES} or README.md)"
            rejections.append(Rejection(folder, "foreign", reason))
    return sorted(folders), rejections


def _require_complete_lines(path: Path) -> None:
    """Checks that every line of a file ends with a newline, since the last one shows truncation.

    Raises:
        ResultError: A newline is missing, or the file cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ResultError(f"{path.name} cannot be read: {error.strerror}") from None
    if not lines or not all(line.endswith(b"\n") for line in lines):
        raise ResultError(f"{path.name} is truncated: a line does not end with a newline")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]} ..."


def _duplicates(submissions: Sequence[Submission]) -> Iterator[Rejection]:
    """Yields a rejection of each result that repeats a task of an earlier one, by name."""
    first: dict[tuple[str, str, int | None, str], str] = {}
    for submission in submissions:
        policy = submission.policy
        for task in submission.tasks:
            key = submission.protocol_digest, policy.name, policy.training_seed, task
            earlier = first.setdefault(key, submission.folder)
            if earlier != submission.folder:
                reason = (
                    f"{earlier} already holds {task} of {policy.name!r}, training seed "
                    f"{policy.training_seed}; give another --name or --training-seed"
                )
                yield Rejection(submission.folder, "duplicate", reason)
                break
