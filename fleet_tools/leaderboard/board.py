"""The leaderboard as one value, which the pages lay out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.leaderboard.standings import Standing, rank_methods
from fleet_tools.leaderboard.submissions import Rejection, Submission
from fleet_tools.leaderboard.verification import Verification


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


@dataclass(frozen=True)
class Ranking:
    """The methods that were evaluated by one version of a protocol.

    Attributes:
        protocol: The protocol.
        digest: Hash of the protocol and its task files.
        standings: The methods, the best first.
        verifications: Verification of each result, by its folder; empty if nothing was verified.
    """

    protocol: Protocol
    digest: str
    standings: Sequence[Standing]
    verifications: Mapping[str, Verification] = field(default_factory=dict)

    def verified(self, standing: Standing) -> tuple[int, int] | None:
        """Returns how many episodes of a method agreed when run again, and how many ran.

        Returns:
            Both numbers; None if none of its results was verified.
        """
        folders = [submission.folder for submission in standing.submissions]
        found = [self.verifications[name] for name in folders if name in self.verifications]
        if not found:
            return None
        return sum(each.same for each in found), sum(each.episodes for each in found)


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Attributes:
        current: The methods that were evaluated by the protocol.
        former: Those that were evaluated by former versions of it, the latest version first; they
            are not ranked with the current ones.
        previews: Incomplete results by the present protocol, which are not ranked; empty if none
            were requested.
        rejections: Rejected results and files.
        clips: Clips by name of the method; empty if none were requested.
    """

    current: Ranking
    former: Sequence[Ranking] = ()
    previews: Sequence[Submission] = ()
    rejections: Sequence[Rejection] = ()
    clips: Mapping[str, Clip] = field(default_factory=dict)


def former_rankings(submissions: Sequence[Submission]) -> list[Ranking]:
    """Returns the ranking of each protocol that results follow, the latest version first.

    Args:
        submissions: Results without problems, by former versions of a protocol.
    """
    protocols = {each.protocol_digest: each.protocol for each in submissions}
    return [
        Ranking(
            protocol,
            digest,
            rank_methods([s for s in submissions if s.protocol_digest == digest], protocol),
        )
        for digest, protocol in sorted(protocols.items(), key=lambda item: -item[1].version)
    ]
