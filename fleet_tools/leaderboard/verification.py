"""Runs episodes of others again: from their stored actions, without their policies.

An episode is what its result says if the same actions in the scene of its seed end in the same
state, bit for bit.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet_tools.dataset.header import other_versions
from fleet_tools.envs.outcomes import SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.evaluation.trial import one_at_a_time, rerun
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.parallel import workers


@dataclass(frozen=True)
class Verification:
    """What came of running some of a result's episodes again.

    Attributes:
        folder: Of the result.
        episodes: How many were run again.
        differences: A sentence for each one that came out otherwise.
        other_versions: By package, the version of the result and the one here, where they differ.
            Then bits may differ that nobody has touched.
    """

    folder: str
    episodes: int
    differences: tuple[str, ...]
    other_versions: dict[str, tuple[str, str | None]]

    @property
    def same(self) -> int:
        """How many came out as the result says."""
        return self.episodes - len(self.differences)


@dataclass(frozen=True)
class Job:
    """An episode that is to be run again."""

    folder: str
    protocol: Protocol
    episode: EpisodeResult


def draw(submission: Submission, count: int, seed: int) -> list[EpisodeResult]:
    """Draws the episodes of a result that are run again, in the protocol's order.

    Args:
        submission: The result; which others there are changes nothing.
        count: How many. All in which the simulator is said to have failed come on top, since they
            count for nothing.
        seed: Draws them.
    """
    episodes = submission.evaluation.episodes
    suspect = [k for k, e in enumerate(episodes) if e.outcome == SIMULATION_ERROR]
    began = [k for k, e in enumerate(episodes) if e.outcome not in (SIMULATION_ERROR, WORKER_ERROR)]
    generator = np.random.default_rng([seed, *submission.folder.encode()])
    drawn = generator.choice(began, min(count, len(began)), replace=False) if began else []
    return [episodes[k] for k in sorted([*suspect, *drawn])]


def verify(
    submissions: Sequence[Submission],
    episodes: int,
    *,
    seed: int,
    worker_keywords: Mapping[str, Any],
    progress: Callable[[Iterable, int], Iterable] = lambda jobs, total: jobs,
) -> list[Verification]:
    """Runs episodes of each result again.

    Args:
        submissions: The results.
        episodes, seed: Of each; see `draw`.
        worker_keywords: Of `fleet_tools.parallel.workers.run`.
        progress: Is handed what comes, and how many there will be.
    """
    jobs = [
        Job(submission.folder, submission.evaluation.result.protocol, episode)
        for submission in submissions
        for episode in draw(submission, episodes, seed)
    ]
    jobs.sort(key=lambda job: job.episode.key)  # those of one task together, and of one scene
    found: dict[str, dict[tuple, str]] = {submission.folder: {} for submission in submissions}
    left = iter(jobs)
    results = workers.run(lambda: next(left, None), make_verifier, **worker_keywords)
    with contextlib.closing(results):
        for job, came in progress(results, len(jobs)):
            differences = [came.reason] if isinstance(came, workers.Lost) else came
            if differences:
                task, split, index = job.episode.key
                place = f"episode {index} of {task}, {split}"
                found[job.folder][job.episode.key] = f"{place}: {'; '.join(differences)}"
    return [_verification(s, jobs, found[s.folder]) for s in submissions]


def make_verifier() -> Callable[[Job], list[str]]:
    """Returns what runs an episode again, and says what came out otherwise."""
    environment_of = one_at_a_time()
    return lambda job: rerun(environment_of(job.episode.task), job.protocol, job.episode)


def _verification(
    submission: Submission, jobs: Sequence[Job], found: dict[tuple, str]
) -> Verification:
    return Verification(
        folder=submission.folder,
        episodes=sum(job.folder == submission.folder for job in jobs),
        differences=tuple(_in_order(found)),
        other_versions=other_versions(submission.evaluation.result.packages),
    )


def _in_order(found: dict[tuple, str]) -> Iterator[str]:
    return (found[key] for key in sorted(found))
