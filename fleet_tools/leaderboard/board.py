"""The leaderboard as one value, which the pages lay out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.leaderboard.submissions import Rejection
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
class Board:
    """A leaderboard.

    Attributes:
        protocol: Protocol of all results.
        digest: Hash of the protocol and its task files.
        standings: The methods, the best first.
        rejections: Rejected results and files.
        verifications: Verification of each result, by its folder; empty if nothing was verified.
        clips: Clips by name of the method; empty if none were requested.
    """

    protocol: Protocol
    digest: str
    standings: Sequence[Standing]
    rejections: Sequence[Rejection] = ()
    verifications: Mapping[str, Verification] = field(default_factory=dict)
    clips: Mapping[str, Clip] = field(default_factory=dict)

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
