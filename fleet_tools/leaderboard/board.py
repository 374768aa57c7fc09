"""The leaderboard as one value, which the pages lay out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from fleet_tools.config.cameras import IDEAL, SENSORS
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.leaderboard.letters import method_letters
from fleet_tools.leaderboard.result_folders import Rejection
from fleet_tools.leaderboard.standings import Standing, in_order, make_standings, rank_methods
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.policies.sources import Track


@dataclass(frozen=True)
class Clip:
    """A video of stored episodes of a method.

    Attributes:
        video: Content of the MP4 file.
        width, height: Size, pixels.
        outcomes: Outcomes of the episodes by task, in the order of their views, row by row.
    """

    video: bytes
    width: int
    height: int
    outcomes: Mapping[str, str]


RankingKind = Literal["observations", "privileged", "unverified"]
"""Kinds of rankings: the two tracks, each with ranks of its own; and methods that are not verified,
which have no rank."""


@dataclass(frozen=True)
class Ranking:
    """Methods that are compared with each other.

    Attributes:
        kind: Kind of ranking.
        protocol: Their protocol.
        standings: The methods, the best first.
        sensors: Their depth cameras; results with others are in other rankings.
        letters: Letters by label of the method: methods that share one cannot be told apart.
    """

    kind: RankingKind
    protocol: Protocol
    standings: Sequence[Standing]
    sensors: str = IDEAL
    letters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Attributes:
        protocol: Protocol of all results.
        digest: Hash of the protocol and its task files.
        rankings: Rankings of methods; none is empty.
        previews: Incomplete results, which are not ranked; empty if none were requested.
        rejections: Rejected results and files.
        clips: Clips by label of the method; empty if none were requested.
        takes_submissions: Whether it is the package's, so that its pages say how to submit.
    """

    protocol: Protocol
    digest: str
    rankings: Sequence[Ranking] = ()
    previews: Sequence[Submission] = ()
    rejections: Sequence[Rejection] = ()
    clips: Mapping[str, Clip] = field(default_factory=dict)
    takes_submissions: bool = True

    @property
    def standings(self) -> list[Standing]:
        """All methods."""
        return [standing for ranking in self.rankings for standing in ranking.standings]


class Reruns(NamedTuple):
    """Episodes of a method that the host ran again.

    Attributes:
        episodes: Their number.
        same_outcome: Number of those that ended alike.
        same: Number of those that agree with the result bit for bit.
    """

    episodes: int
    same_outcome: int
    same: int


def reruns(standing: Standing) -> Reruns | None:
    """Returns what came of the episodes of a method that ran again; None if none did."""
    found = [each.verification for each in standing.submissions if each.verification is not None]
    if not found:
        return None
    return Reruns(
        episodes=sum(each.episodes for each in found),
        same_outcome=sum(each.same_outcome for each in found),
        same=sum(each.same for each in found),
    )


def make_rankings(submissions: Sequence[Submission], protocol: Protocol) -> list[Ranking]:
    """Returns the rankings of all methods.

    A method is ranked once all its results are verified.

    Args:
        submissions: Results without problems, none of which is refuted.
        protocol: Their protocol.
    """
    standings = make_standings(submissions, protocol)
    verified = [standing for standing in standings if standing.verified]
    by_kind: dict[tuple[RankingKind, str], list[Standing]] = {
        (track, sensors): rank_methods(
            [each for each in verified if (each.track, each.sensors) == (track, sensors)]
        )
        for track in get_args(Track)
        for sensors in SENSORS
    }
    for sensors in SENSORS:
        by_kind["unverified", sensors] = in_order(
            [each for each in standings if not each.verified and each.sensors == sensors]
        )
    return [
        Ranking(
            kind,
            protocol,
            of_kind,
            sensors,
            letters={} if kind == "unverified" else method_letters(of_kind, protocol),
        )
        for (kind, sensors), of_kind in by_kind.items()
        if of_kind
    ]
