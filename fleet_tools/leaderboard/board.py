"""All that a leaderboard says, as one value; the pages only lay it out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.leaderboard.standings import Standing, Success
from fleet_tools.leaderboard.submissions import Finding
from fleet_tools.leaderboard.verification import Verification

if TYPE_CHECKING:
    from fleet_tools.leaderboard.clips import Clip

READING = (
    "Success at the end of an episode, with its 95% interval. A tool's or a split's interval is "
    "Wilson's. The total is the mean over all pairs of tool and split, and its interval a "
    "stratified bootstrap's.",
    "A rank is 1 plus the number of methods whose whole interval of the total lies above, so "
    "methods that cannot be told apart share it. A method without every tool has no total and no "
    "rank.",
    "Where a method was trained several times, its number is the mean over its trainings, and its "
    "interval a bootstrap's that draws trainings and scenes.",
)
"""How the numbers are to be read, by paragraphs."""

SUBMITTING = (
    (
        "Evaluate your policy: a checkpoint, or module:factory, where factory(env) returns an "
        "object with reset() and act(observation). Of several trainings, give each its "
        "--training-seed, and a folder of its own.",
        "python -m fleet_tools.evaluate --policy my_module:make_policy --name my_method "
        "--output leaderboard/results/my_method",
    ),
    (
        "Check it as we do. Any tool may be missing, but no scene of a tool.",
        "python -m fleet_tools.leaderboard leaderboard/results --verify 10 "
        "--output leaderboard/index.html",
    ),
    (
        "Commit the result, and open a pull request.",
        'git add leaderboard && git commit -m "Leaderboard: my_method"',
    ),
)
"""How a result gets here: what is to be done, and by which command."""


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Attributes:
        protocol, digest: By which all results are; the digest is of its task files, too.
        rows: The methods, the best first.
        findings: Why results are refused.
        verifications: By the folder of the result; empty where none was asked for.
        clips: By the method's name, likewise.
    """

    protocol: Protocol
    digest: str
    rows: Sequence[Standing]
    findings: Sequence[Finding] = ()
    verifications: Mapping[str, Verification] = field(default_factory=dict)
    clips: Mapping[str, "Clip"] = field(default_factory=dict)

    def verified(self, row: Standing) -> tuple[int, int] | None:
        """Returns how many episodes of a method came out the same again, and of how many."""
        checked = [
            self.verifications[s.folder] for s in row.submissions if s.folder in self.verifications
        ]
        return (sum(v.same for v in checked), sum(v.episodes for v in checked)) if checked else None


def heads(board: Board) -> list[str]:
    """Returns the names of the columns; the last one only where something was verified."""
    shown = ["rank", "method", "total", *board.protocol.tasks, *board.protocol.splits]
    return [*shown, "at any time", "errors", *(["verified"] if board.verifications else [])]


def percent(rate: float | None) -> str:
    """Returns a rate in words, such as "93.2%"."""
    return "none" if rate is None else f"{rate:.1%}"


def interval(success: Success) -> str:
    """Returns an interval in words, such as "90.1% to 95.4%"."""
    return f"{percent(success.low)} to {percent(success.high)}"


def trainings(row: Standing) -> str:
    """Says how often a method was trained, and how far that spreads; "" if once."""
    if len(row.trainings) == 1:
        return ""
    known = [rate for rate in (row.total.of_trainings if row.total else ()) if rate is not None]
    spread = f": {percent(min(known))} to {percent(max(known))}" if known else ""
    return f"{len(row.trainings)} trainings{spread}"


def errors(row: Standing) -> dict[str, int]:
    """Returns how many episodes ended by an error, by whose it was; those without are left out."""
    counts = sum((Counter(score.errors) for score in row.scores), Counter())
    return {who: count for who, count in counts.items() if count}


def words(name: str) -> str:
    """Returns a name as people write it, such as "unseen tools"."""
    return name.replace("_", " ")


def facts(board: Board, row: Standing) -> list[list[tuple[str, str]]]:
    """Returns what is known of each result of a method: names and values."""
    return [
        _facts(board, submission.folder, submission.evaluation.result)
        for submission in row.submissions
    ]


def _facts(board: Board, folder: str, result) -> list[tuple[str, str]]:
    policy, machine = result.policy, result.machine
    told = [
        ("result", folder),
        ("policy", f"{policy.source} ({words(policy.kind)})"),
        ("hash", policy.content_digest or ""),
        ("training seed", "" if policy.training_seed is None else str(policy.training_seed)),
        ("observes", ", ".join(f"{k} {v}" for k, v in policy.environment.items()) or "state"),
        ("versions", ", ".join(f"{name} {version}" for name, version in result.packages.items())),
        (
            "hardware",
            f"{machine.processor}, {machine.cores:g} cores, {machine.memory_gib:g} GiB; "
            f"{machine.system}",
        ),
        ("command", result.command),
        ("verified", _verification(board.verifications.get(folder))),
    ]
    return [(name, value) for name, value in told if value]


def _verification(verification: Verification | None) -> str:
    if verification is None:
        return ""
    v = verification
    others = ", ".join(
        f"{name} {now}, not {then}" for name, (then, now) in v.other_versions.items()
    )
    where = f"on other versions ({others})" if others else "on the same versions"
    found = "".join(f" {difference}." for difference in v.differences)
    return f"{v.same} of {v.episodes} episodes the same, bit for bit, {where}.{found}"
