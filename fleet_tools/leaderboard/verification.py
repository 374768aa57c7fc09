"""Verification of submitted episodes: they run again, from their actions or by their policy.

An episode is genuine if the same actions, in the scene of its seed, end alike. How far apart the
last states are, and whether their bits are the same, is told, too, but depends on the machine.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium
import numpy as np

from fleet_tools.envs.outcomes import SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.result import EpisodeResult, Result
from fleet_tools.evaluation.trial import Rerun, guarded, present_env, verify
from fleet_tools.leaderboard.records import Verification, kept_differences
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.rollouts.agreement import counts
from fleet_tools.storage.provenance import Machine, installed_packages, other_versions


@dataclass(frozen=True)
class EpisodeJob:
    """An episode that is to be verified.

    Attributes:
        folder: Folder of its result, see `Submission`.
        result: Its result.
        episode: The episode.
        policy: Its policy, if it runs by that.
    """

    folder: str
    result: Result
    episode: EpisodeResult
    policy: PolicySource | None = None


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


def draw_jobs(
    submissions: Sequence[Submission],
    count: int,
    seed: int,
    checkpoints: Mapping[str, Path] | None = None,
) -> list[EpisodeJob]:
    """Draws the episodes of all results that are verified, see `draw_episodes`.

    Args:
        submissions: The results.
        count: Number of episodes of each.
        seed: Seed of the draw.
        checkpoints: Checkpoints by the hashes of their content; results of these are verified by
            their policies.
    """
    jobs = [
        EpisodeJob(submission.folder, submission.evaluation.result, episode, policy)
        for submission in submissions
        for policy in [_policy(submission.policy, checkpoints or {})]
        for episode in draw_episodes(submission, count, seed)
    ]
    # A worker's environment is of one task, and its policy of one result.
    return sorted(jobs, key=lambda job: (job.episode.task, job.folder, job.episode.key))


def find_checkpoints(folder: Path) -> dict[str, Path]:
    """Returns all checkpoints below a folder by the hashes of their content."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with contextlib.suppress(FleetToolsError):  # other tensors, such as those of a training
            policy = find_policy(str(path))
            found[str(policy.content_digest)] = path
    return found


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
        The results with their verification, but for results of which an episode was lost with its
        worker; and a sentence for each lost episode.
    """
    verdicts: dict[str, list[tuple[EpisodeResult, Rerun]]] = {
        submission.folder: [] for submission in submissions
    }
    by_policy = {job.folder for job in jobs if job.policy is not None}
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
            verification=_verification(
                submission,
                count,
                seed,
                verdicts[submission.folder],
                submission.folder in by_policy,
            ),
        )
        for submission in submissions
    ]
    return verified, list(lost.values())


def make_verifier() -> Callable[[EpisodeJob], Rerun]:
    """Returns a function that runs an episode again, and compares the result."""
    env_of: dict[tuple[str, str], Callable[[str], gymnasium.Env]] = {}
    policies: dict[tuple[str, str], Policy] = {}

    def run(job: EpisodeJob) -> Rerun:
        task, kwargs = job.episode.task, job.result.policy.env_kwargs if job.policy else {}
        key = job.result.protocol_digest, json.dumps(kwargs, sort_keys=True)
        if key not in env_of:
            env_of.clear()
            # The protocol is the host's own, see `read_submissions`.
            env_of[key] = present_env(job.result.protocol, trusted=True, **kwargs)
        env = env_of[key](task)
        if job.policy is None:
            return verify(env, job.result.protocol, job.episode)
        if (job.folder, task) not in policies:
            policies.clear()  # ends the process of the one before
            policies[job.folder, task] = guarded(job.policy, "observations", env, 0)
        return verify(env, job.result.protocol, job.episode, policies[job.folder, task])

    return run


def _policy(policy: PolicyProvenance, checkpoints: Mapping[str, Path]) -> PolicySource | None:
    """Returns the policy of a result, if the host has its checkpoint."""
    path = checkpoints.get(policy.content_digest or "")
    if policy.kind != "checkpoint" or path is None:
        return None
    return PolicySource("checkpoint", str(path), policy.content_digest, dict(policy.env_kwargs))


def _verification(
    submission: Submission,
    count: int,
    seed: int,
    verdicts: Sequence[tuple[EpisodeResult, Rerun]],
    by_policy: bool,
) -> Verification:
    ordered = sorted(verdicts, key=lambda each: each[0].key)
    result, here = submission.evaluation.result, Machine.here()
    found = counts(verdict.agreement for _, verdict in verdicts)
    return Verification(
        folder=submission.folder,
        content_digest=submission.content_digest,
        by="policy" if by_policy else "actions",
        seed=seed,
        requested=count,
        same=found.pop("identical"),
        **found,
        differences=kept_differences(
            (verdict.agreement.same_outcome, f"{_which(episode)}: {'; '.join(verdict.differences)}")
            for episode, verdict in ordered
            if verdict.differences
        ),
        other_versions=other_versions(result.packages),
        other_machine=result.machine.differences(here),
        packages=installed_packages(),
        machine=here,
    )


def _which(episode: EpisodeResult) -> str:
    return f"episode {episode.index} of {episode.task}, {episode.split}"
