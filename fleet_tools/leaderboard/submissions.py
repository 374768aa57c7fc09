"""Reads results that others submitted, and rejects those with claims that cannot be confirmed.

    DIR/METHOD/any/folders/result.json, episodes.parquet   a result of METHOD
    DIR/METHOD/any/folders/README.md                       comments; the first line says on the
                                                           page what the method is
    DIR/verified.jsonl                                     what the host verified
    DIR/certified.jsonl                                    verdicts at smaller time steps

Each result covers one or more complete tasks of the protocol, in all splits.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.evaluation.admission import missing_scenes
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.result_folder import EPISODES, EVALUATION, RESULT, in_order
from fleet_tools.leaderboard.checks import Problem, find_problems, followed
from fleet_tools.leaderboard.records import (
    Certificate,
    Verification,
    content_digest,
    read_certificates,
    read_verifications,
    still_valid,
)
from fleet_tools.leaderboard.result_folders import (
    Rejection,
    description,
    find_result_folders,
    likeness,
    method_folder,
    name_problem,
    shortened,
)
from fleet_tools.storage.locked_folder import read_version


@dataclass(frozen=True)
class Submission:
    """A result without problems.

    Attributes:
        folder: Path of its folder within the folder of all results.
        evaluation: The result, with its episodes in the protocol's order.
        content_digest: Hash of its files.
        missing: What an incomplete result lacks, see `missing_scenes`; empty for a complete one.
        description: What the method is, by the heading of the nearest README.md; empty if none.
        verification: What the host found when it ran episodes again; None if it has not, or if the
            result has changed since.
        certificate: Verdicts of some episodes at smaller time steps; None likewise.
    """

    folder: str
    evaluation: Evaluation
    content_digest: str = ""
    missing: str = ""
    description: str = ""
    verification: Verification | None = None
    certificate: Certificate | None = None

    @property
    def policy(self) -> PolicyProvenance:
        """The evaluated policy."""
        return self.evaluation.result.policy

    def verified(self, episodes: int = 0) -> bool:
        """Returns whether the host has verified it, by at least so many episodes."""
        found = self.verification
        return found is not None and found.status == "verified" and found.requested >= episodes

    @functools.cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it covers."""
        return tuple(dict.fromkeys(episode.task for episode in self.evaluation.episodes))


def read_submissions(
    root: Path, protocols: Sequence[Protocol], *, preview: bool = False
) -> tuple[list[Submission], list[Rejection]]:
    """Reads and checks all results below a folder, in the order of their names.

    Args:
        root: The folder.
        protocols: The levels; each result has to follow one of them.
        preview: Whether results whose only problem is that they are incomplete are among those
            returned, with what is missing, and not rejected.

    Raises:
        ResultError: There is no such folder.
    """
    if not root.is_dir():
        raise ResultError(f"There is no folder {root}. Give one that holds folders of results.")
    folders, rejections = find_result_folders(root)
    verifications, certificates = read_verifications(root), read_certificates(root)
    submissions = []
    for folder in folders:
        name = folder.relative_to(root).as_posix()
        evaluation, problems = _read(folder, protocols)
        missing = ""
        if preview and evaluation is not None and problems:  # only incomplete
            missing, problems = _missing_text(evaluation, problems), []
        if evaluation is not None and not problems:
            digest, about = content_digest(folder), description(folder, root)
            verified = still_valid(verifications.get(name), digest)
            certified = still_valid(certificates.get(name), digest)
            submissions.append(
                Submission(name, evaluation, digest, missing, about, verified, certified)
            )
        rejections += [Rejection(name, *problem) for problem in problems]
    wrong = list(_wrong_names(submissions, root))
    misnamed = {rejection.folder for rejection in wrong}
    named = [each for each in submissions if not each.missing and each.folder not in misnamed]
    rejections += [*wrong, *_duplicates(named)]
    rejected = {rejection.folder for rejection in rejections}
    accepted = [submission for submission in submissions if submission.folder not in rejected]
    return accepted, sorted(rejections, key=lambda rejection: rejection.folder)


def without_refuted(
    submissions: Sequence[Submission],
) -> tuple[list[Submission], list[Rejection]]:
    """Returns the results that verification has not refuted, and a rejection of each other one."""
    kept, refuted = [], []
    for submission in submissions:
        found = submission.verification
        if found is not None and found.status == "refuted":
            refuted.append(Rejection(submission.folder, "refuted", found.reason))
        else:
            kept.append(submission)
    return kept, refuted


def read_checked(folder: Path, protocol: Protocol) -> Evaluation | list[Problem]:
    """Reads a result, and checks every claim of it.

    Args:
        folder: Folder of the result.
        protocol: The protocol that it has to follow.

    Returns:
        The result, with its episodes in the protocol's order; or all its problems.
    """
    evaluation, problems = _read(folder, [protocol])
    return problems if evaluation is None else problems or evaluation


def _read(folder: Path, protocols: Sequence[Protocol]) -> tuple[Evaluation | None, list[Problem]]:
    """Returns a result and its problems; None if it cannot be read, or has unknown episodes."""
    try:
        _require_complete_lines(folder / RESULT)
        version = read_version(folder / RESULT, ResultError)
        if type(version) is not int or version != EVALUATION.version:
            reason = f"its schema version is {version!r}; this version of Fleet-Tools reads"
            return None, [Problem("schema", shortened(f"{reason} {EVALUATION.version}"))]
        result = EVALUATION.read_document(folder)
        if EVALUATION.packed(folder) is None:
            _require_complete_lines(folder / EPISODES)
        episodes, _ = EVALUATION.read_records(folder)
    except (FleetToolsError, RecursionError) as error:
        return None, [Problem("damaged", shortened(str(error).replace(f"{folder}/", "")))]
    protocol = followed(result, protocols)
    problems = find_problems(result, episodes, protocol)
    if any(problem.kind != "incomplete" for problem in problems):
        return None, problems
    episodes = in_order(result.protocol, episodes, EVALUATION.records_file(folder))
    # The same content, but the host's task files, which say where their models are.
    result = result.model_copy(update={"protocol": protocol})
    return Evaluation(result, episodes), problems


def _missing_text(evaluation: Evaluation, problems: Sequence[Problem]) -> str:
    keys = {episode.key for episode in evaluation.episodes}
    missing = missing_scenes(evaluation.result.protocol, keys)
    return f"only {missing}" if missing else problems[0].reason


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


def _wrong_names(submissions: Sequence[Submission], root: Path) -> Iterator[Rejection]:
    """Yields a rejection of each result whose method may not have its name."""
    named: dict[str, str] = {}
    # What the host has verified keeps its name.
    earned = sorted(submissions, key=lambda each: (not each.verified(), each.folder))
    for submission in earned:
        policy = submission.policy
        problem = name_problem(policy.name, policy.kind, method_folder(submission.folder, root))
        first = named.setdefault(likeness(policy.name), policy.name)
        if problem is None and first != policy.name:
            problem = f"the name {policy.name!r} could be mistaken for {first!r}"
        if problem is not None:
            yield Rejection(submission.folder, "name", f"{problem}; give another --name")


def _duplicates(submissions: Sequence[Submission]) -> Iterator[Rejection]:
    """Yields a rejection of each result that repeats a task of an earlier one, by name."""
    first: dict[tuple[str, int | None, str, str], str] = {}
    for submission in submissions:
        policy, level = submission.policy, submission.evaluation.result.protocol_digest
        for task in submission.tasks:
            key = policy.label, policy.training_seed, task, level
            earlier = first.setdefault(key, submission.folder)
            if earlier != submission.folder:
                reason = (
                    f"{earlier} already holds {task} of {policy.label!r}, training seed "
                    f"{policy.training_seed}; give another --name or --training-seed"
                )
                yield Rejection(submission.folder, "duplicate", reason)
                break
