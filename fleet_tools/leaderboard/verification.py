"""Verification of submitted episodes: they run again, from their actions or by their policy.

An episode is genuine if the same actions, in the scene of its seed, end alike. Whether they lead to
the same bits is told, too, but depends on the machine.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.envs.outcomes import SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.evaluation.trial import Verdict, present_env, verify
from fleet_tools.leaderboard.records import Verification, kept_differences
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.parallel.options import WorkerOptions
from fleet_tools.parallel.workers import LostJob
from fleet_tools.storage.provenance import Machine, other_versions


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
        seed: Seed of the draw, which must not be known before the result is submitted.
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
    count: int,
    seed: int,
    workers: WorkerOptions,
    after_each: Callable[[], None] = lambda: None,
) -> tuple[list[Submission], list[str]]:
    """Runs episodes of results again, and compares them.

    Args:
        submissions: The results.
        jobs: Their episodes, see `draw_jobs`.
        count: Number of episodes of each, as requested.
        seed: Seed of the draw.
        workers: Number, time limit and place of worker processes.
        after_each: Called after each episode.

    Returns:
        The results with their verification, but for those of which an episode was lost with its
        worker; and a sentence for each lost episode.
    """
    verdicts: dict[str, list[tuple[EpisodeResult, Verdict]]] = {
        submission.folder: [] for submission in submissions
    }
    lost: dict[str, str] = {}
    results = workers.run(jobs, make_verifier)
    with contextlib.closing(results):
        for job, result in results:
            if isinstance(result, LostJob):
                lost[job.folder] = f"{job.folder}: {_which(job.episode)}: {result.reason}"
            else:
                verdicts[job.folder].append((job.episode, result))
            after_each()
    verified = [
        submission
        if submission.folder in lost
        else replace(
            submission,
            verification=_verification(submission, count, seed, verdicts[submission.folder]),
        )
        for submission in submissions
    ]
    return verified, list(lost.values())


def make_verifier() -> Callable[[EpisodeJob], Verdict]:
    """Returns a function that runs an episode again, and compares the result."""
    env_of = present_env()
    return lambda job: verify(env_of(job.episode.task), job.protocol, job.episode)


def _verification(
    submission: Submission,
    count: int,
    seed: int,
    verdicts: Sequence[tuple[EpisodeResult, Verdict]],
) -> Verification:
    ordered = sorted(verdicts, key=lambda each: each[0].key)
    return Verification(
        folder=submission.folder,
        content_digest=submission.content_digest,
        seed=seed,
        requested=count,
        episodes=len(verdicts),
        same=sum(not verdict.differences for _, verdict in verdicts),
        same_outcome=sum(verdict.same_outcome for _, verdict in verdicts),
        differences=kept_differences(
            (verdict.same_outcome, f"{_which(episode)}: {'; '.join(verdict.differences)}")
            for episode, verdict in ordered
            if verdict.differences
        ),
        other_versions=other_versions(submission.evaluation.result.packages),
        machine=Machine.here(),
    )


def _which(episode: EpisodeResult) -> str:
    return f"episode {episode.index} of {episode.task}, {episode.split}"
