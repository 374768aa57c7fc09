"""Verification of submitted episodes: their stored actions run again, without their policies.

An episode is genuine if the same actions, in the scene of its seed, lead to the same final state,
bit for bit.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.envs.outcomes import SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.evaluation.trial import Verdict, present_env, verify
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.parallel.options import WorkerOptions
from fleet_tools.parallel.workers import LostJob
from fleet_tools.storage.provenance import other_versions


@dataclass(frozen=True)
class Verification:
    """Verification of some episodes of a result.

    Attributes:
        folder: Folder of the result, see `Submission`.
        episodes: Number of episodes that ran again.
        same_outcome: Number of those whose outcome is the stored one; on another processor, this
            may be so although bits differ.
        differences: A sentence for each episode that differs.
        other_versions: By package, the version of the result and the one here, if they differ;
            then genuine episodes may differ, too.
    """

    folder: str
    episodes: int
    same_outcome: int
    differences: tuple[str, ...]
    other_versions: dict[str, tuple[str, str | None]]

    @property
    def same(self) -> int:
        """Number of episodes that agree with the result bit for bit."""
        return self.episodes - len(self.differences)


@dataclass(frozen=True)
class EpisodeJob:
    """An episode that is to be verified.

    Attributes:
        folder: Folder of its result, see `Submission`.
        protocol: Protocol of its result.
        episode: The episode.
    """

    folder: str
    protocol: Protocol
    episode: EpisodeResult


def draw_episodes(submission: Submission, count: int, seed: int) -> list[EpisodeResult]:
    """Draws the episodes of a result that are verified, in the protocol's order.

    Args:
        submission: The result; the draw does not depend on other results.
        count: Number of episodes. Those in which the simulator is said to have failed are added,
            all of them, since they do not count as trials.
        seed: Seed of the draw.
    """
    episodes = submission.evaluation.episodes
    suspect = [k for k, e in enumerate(episodes) if e.outcome == SIMULATION_ERROR]
    began = [k for k, e in enumerate(episodes) if e.outcome not in (SIMULATION_ERROR, WORKER_ERROR)]
    generator = np.random.default_rng([seed, *submission.folder.encode()])
    drawn = generator.choice(began, min(count, len(began)), replace=False) if began else []
    return [episodes[k] for k in sorted([*suspect, *drawn])]


def draw_jobs(submissions: Sequence[Submission], count: int, seed: int) -> list[EpisodeJob]:
    """Draws the episodes of all results that are verified, see `draw_episodes`."""
    jobs = [
        EpisodeJob(submission.folder, submission.evaluation.result.protocol, episode)
        for submission in submissions
        for episode in draw_episodes(submission, count, seed)
    ]
    return sorted(jobs, key=lambda job: job.episode.key)  # a worker's environment is of one task


def verify_submissions(
    submissions: Sequence[Submission],
    jobs: Sequence[EpisodeJob],
    workers: WorkerOptions,
    after_each: Callable[[], None] = lambda: None,
) -> list[Verification]:
    """Runs episodes again, and compares them with their results.

    Args:
        submissions: The results.
        jobs: Their episodes that are verified.
        workers: Number, time limit and place of worker processes.
        after_each: Called after each episode.

    Returns:
        The verification of each result.
    """
    differences: dict[str, dict[tuple[str, str, int], str]] = {
        submission.folder: {} for submission in submissions
    }
    other_outcomes = Counter[str]()
    results = workers.run(jobs, make_verifier)
    with contextlib.closing(results):
        for job, result in results:
            lost = isinstance(result, LostJob)
            verdict = Verdict((result.reason,), same_outcome=False) if lost else result
            other_outcomes[job.folder] += not verdict.same_outcome
            if verdict.differences:
                task, split, index = job.episode.key
                which = f"episode {index} of {task}, {split}"
                differences[job.folder][job.episode.key] = (
                    f"{which}: {'; '.join(verdict.differences)}"
                )
            after_each()
    episodes = Counter(job.folder for job in jobs)
    return [
        Verification(
            folder=submission.folder,
            episodes=episodes[submission.folder],
            same_outcome=episodes[submission.folder] - other_outcomes[submission.folder],
            differences=tuple(text for _, text in sorted(differences[submission.folder].items())),
            other_versions=other_versions(submission.evaluation.result.packages),
        )
        for submission in submissions
    ]


def make_verifier() -> Callable[[EpisodeJob], Verdict]:
    """Returns a function that runs an episode again, and compares the result."""
    env_of = present_env()
    return lambda job: verify(env_of(job.episode.task), job.protocol, job.episode)
