"""The leaderboard as plain values, from which its pages are rendered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from fleet_tools.evaluation.level_cost import PairedDifference

Track = Literal["privileged", "keypoints", "clouds", "images"]
"""Inputs of a policy in the host's run: the environment, or only such observations."""
TRACKS: tuple[Track, ...] = get_args(Track)
"""The tracks; a policy of one of them knows more than a policy of the next."""


@dataclass(frozen=True)
class SuccessRate:
    """A success rate.

    Attributes:
        rate: Mean over tasks and splits, and over training runs; None without trials.
        low, high: 95% interval.
    """

    rate: float | None
    low: float
    high: float


@dataclass(frozen=True)
class LevelScore:
    """Success of a method at a level of the protocol, by the results that it submitted.

    Attributes:
        rate: Success rate; None without trials.
        low, high: 95% interval.
        cost: What the level costs; None at the nominal level, and without nominal results.
    """

    rate: float | None
    low: float
    high: float
    cost: PairedDifference | None = None


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
class Rejection:
    """A rejected submission, or a rejected part of one.

    Attributes:
        folder: Its folder, within the folder of the leaderboard.
        reason: What is wrong, and how to mend it.
    """

    folder: str
    reason: str


@dataclass(frozen=True)
class Method:
    """An entry of the leaderboard.

    Attributes:
        name: Its name, also of its folder.
        title: Its name in words.
        description: One line.
        track: What it reads: by the host's run, or by its own word if it has none.
        score: Success rate on the fresh scenes; None without a run of the host on all tasks.
        rank: 1 plus the number of methods of its track whose whole interval lies above its own;
            None for a method that is not ranked.
        letters: Methods of a track that share a letter cannot be told apart.
        levels: By level of the protocol, its score by submitted results; None without any.
        tasks, splits: Success rates on the fresh scenes; of a self-reported method, at the nominal
            level.
        failures: Number of failed episodes by stage or cause, likewise.
        same_actions_as: Methods whose actions are the same in the same scenes. The one that was
            submitted first keeps its rank.
        self_reported: Whether there is no policy that the host can run.
        provenance: Facts by name.
        clip: Video of some of its episodes; None if none was requested.
    """

    name: str
    title: str
    description: str
    track: Track
    score: SuccessRate | None = None
    rank: int | None = None
    letters: str = ""
    levels: Mapping[str, LevelScore | None] = field(default_factory=dict)
    tasks: Mapping[str, SuccessRate] = field(default_factory=dict)
    splits: Mapping[str, SuccessRate] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    same_actions_as: tuple[str, ...] = ()
    self_reported: bool = False
    provenance: Mapping[str, str] = field(default_factory=dict)
    clip: Clip | None = None


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Attributes:
        levels: Names and descriptions of the protocol's levels, the easiest first.
        methods: The methods: by track, the best of each first; those without a rank last.
        rejections: Rejected submissions.
        seed_published: The seed from which the host drew the fresh scenes; None as long as the host
            keeps it, and without a run of the host.
    """

    levels: Sequence[tuple[str, str]]
    methods: tuple[Method, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    seed_published: str | None = None
