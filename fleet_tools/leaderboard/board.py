"""The leaderboard as one value, which the pages lay out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from fleet_tools.config.cameras import IDEAL, SENSORS
from fleet_tools.evaluation.protocol import Protocol, protocol_digest, task_digests
from fleet_tools.leaderboard.letters import method_letters
from fleet_tools.leaderboard.result_folders import Rejection
from fleet_tools.leaderboard.standings import (
    LeaderboardTrack,
    Standing,
    in_order,
    make_standings,
    rank_methods,
)
from fleet_tools.leaderboard.submissions import Submission


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


RankingKind = Literal["keypoints", "clouds", "images", "privileged", "unverified"]
"""Kinds of rankings: the tracks, each with ranks of its own; and methods that are not verified,
which have no rank."""


_KINDS: tuple[RankingKind, ...] = get_args(RankingKind)

HEADINGS: dict[RankingKind, str] = {
    "keypoints": "Keypoints",
    "clouds": "Point clouds",
    "images": "Images",
    "privileged": "Privileged",
    "unverified": "Not verified",
}
"""Headings of the kinds of rankings."""

_NOTES: dict[RankingKind, str] = {
    "keypoints": "These methods act on their observations alone, which have exact keypoints.",
    "clouds": "These methods act on point clouds alone, beside the robot's own senses.",
    "images": "These methods act on images alone, beside the robot's own senses.",
    "privileged": "These methods could read the state of the simulator, whether they do or not.",
    "unverified": "These results have no rank: we have not run their episodes again.",
}

_SENSORS_NOTE = (
    " Their depth cameras make the errors of {} cameras: noise, lost edges, miscalibration and "
    "delay, the same for all methods."
)


@dataclass(frozen=True)
class RankedLevel:
    """A level of the leaderboard.

    Attributes:
        protocol: Its protocol.
        digest: Hash of the protocol and its task files.
    """

    protocol: Protocol
    digest: str

    @classmethod
    def of(cls, protocol: Protocol) -> "RankedLevel":
        """Returns the level of a protocol, with the task files of here."""
        return cls(protocol, protocol_digest(protocol, task_digests(protocol)))

    @property
    def text(self) -> str:
        """What it is."""
        protocol = self.protocol
        return f"{protocol.title}, {len(protocol.trials())} episodes. {protocol.description}"


@dataclass(frozen=True)
class Ranking:
    """Methods that are compared with each other.

    Attributes:
        kind: Kind of ranking.
        protocol: Their protocol, a level.
        standings: The methods, the best first.
        sensors: Their depth cameras; results with others are in other rankings.
        letters: Letters by label of the method: methods that share one cannot be told apart.
    """

    kind: RankingKind
    protocol: Protocol
    standings: Sequence[Standing]
    sensors: str = IDEAL
    letters: Mapping[str, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Its heading, which names cameras that are not the level's."""
        usual = self.sensors == (self.protocol.sensors or IDEAL)
        sensors = "" if usual else f", {self.sensors.replace('_', ' ')} sensors"
        return f"{HEADINGS[self.kind]}{sensors}"

    @property
    def note(self) -> str:
        """What its methods have in common."""
        sensors = _SENSORS_NOTE.format(self.sensors.replace("_", " "))
        return _NOTES[self.kind] + sensors * (self.sensors != IDEAL)

    @property
    def has_contact_metrics(self) -> bool:
        """Whether it is known of any of its methods how it handles the tasks."""
        return any(each.overall and each.overall.contact_metrics for each in self.standings)


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Attributes:
        levels: The levels, the easiest first; at least one.
        rankings: Rankings of methods, by level; none is empty.
        previews: Incomplete results, which are not ranked; empty if none were requested.
        rejections: Rejected results and files.
        clips: Clips by label of the method, of the first level; empty if none were requested.
        takes_submissions: Whether it is the package's, so that its pages say how to submit.
    """

    levels: Sequence[RankedLevel]
    rankings: Sequence[Ranking] = ()
    previews: Sequence[Submission] = ()
    rejections: Sequence[Rejection] = ()
    clips: Mapping[str, Clip] = field(default_factory=dict)
    takes_submissions: bool = True

    @property
    def protocol(self) -> Protocol:
        """The protocol of the first level, which has all tasks of the others."""
        return self.levels[0].protocol

    @property
    def standings(self) -> list[Standing]:
        """All methods at all levels."""
        return [standing for ranking in self.rankings for standing in ranking.standings]

    def anchor(self, standing: Standing) -> str:
        """Returns the identifier of a method's details in the page."""
        return f"method-{[*map(id, self.standings)].index(id(standing))}"

    def rankings_of(self, level: RankedLevel) -> list[Ranking]:
        """Returns the rankings of one of the levels."""
        return [each for each in self.rankings if each.protocol == level.protocol]


class AcrossLevels(NamedTuple):
    """A method at all levels.

    Attributes:
        track: What it reads.
        name: Its name.
        standings: What it does at each level, with the level's cameras; None without a result.
    """

    track: LeaderboardTrack
    name: str
    standings: Sequence[Standing | None]

    @property
    def some(self) -> Standing:
        """What it does at the first level at which it has results."""
        return next(each for each in self.standings if each is not None)


def across_levels(board: Board) -> list[AcrossLevels]:
    """Returns the verified methods of a board, by track, in the order of the first level."""
    found: dict[tuple[LeaderboardTrack, str], list[Standing | None]] = {}
    for ranking in board.rankings:
        if ranking.kind == "unverified" or ranking.sensors != (ranking.protocol.sensors or IDEAL):
            continue
        place = [level.protocol for level in board.levels].index(ranking.protocol)
        for standing in ranking.standings:
            row = found.setdefault((ranking.kind, standing.name), [None] * len(board.levels))
            row[place] = standing
    ordered = sorted(found, key=lambda key: _KINDS.index(key[0]))
    return [AcrossLevels(*key, found[key]) for key in ordered]


def make_rankings(
    submissions: Sequence[Submission], protocols: Sequence[Protocol]
) -> list[Ranking]:
    """Returns the rankings of all methods, level by level.

    A method is ranked once all its results of the level are verified.

    Args:
        submissions: Results without problems, none of which is refuted.
        protocols: The levels.
    """
    return [
        ranking
        for protocol in protocols
        for ranking in _rankings(
            [each for each in submissions if each.evaluation.result.protocol == protocol], protocol
        )
    ]


def _rankings(submissions: Sequence[Submission], protocol: Protocol) -> list[Ranking]:
    standings = make_standings(submissions, protocol)
    verified = [standing for standing in standings if standing.verified]
    by_kind: dict[tuple[RankingKind, str], list[Standing]] = {
        (track, sensors): rank_methods(
            [each for each in verified if (each.track, each.sensors) == (track, sensors)]
        )
        for track in _KINDS[:-1]
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
