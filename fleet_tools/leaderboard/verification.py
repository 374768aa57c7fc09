"""Verification of an entry: the host runs its policies in the fresh scenes.

Submitted results give no rank. Some of their episodes run again, too: by the entry's policy, or
from their actions where there is none.
"""

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np

from fleet_tools.envs.outcomes import SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.admission import objections
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Trial
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, Result, decode_actions
from fleet_tools.evaluation.result_folder import EvaluationWriter, load_evaluation
from fleet_tools.evaluation.run import describe, run_trials
from fleet_tools.evaluation.trial import (
    guarded,
    judge,
    lost_trial,
    present_env,
    run_again,
    run_trial,
)
from fleet_tools.leaderboard.board import TRACKS, Track
from fleet_tools.leaderboard.checks import host_digest, read_submitted
from fleet_tools.leaderboard.entries import Entry, EntryPolicy
from fleet_tools.leaderboard.host import (
    HOST,
    VERIFICATION,
    Round,
    Verification,
    evaluation_digest,
    evaluation_folder,
    now,
    read_verification,
)
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.sources import PolicySource
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.provenance import Machine, installed_packages, other_versions
from fleet_tools.utils.progress import TallyBar

CHECKS = 4
"""Number of episodes of each submitted result that run again."""

ALIKE = 0.01
"""Largest difference of two first actions of one policy in one scene, on whatever processors."""

EXCUSED_SHARE = 0.1
"""Share of episodes that may end otherwise from their actions on another processor."""

_TIMED = 4
"""Number of first episodes from which the time of the others is told."""


@dataclass(frozen=True)
class Planned:
    """One run of a policy by the host.

    Attributes:
        policy: The policy.
        source: Where it comes from.
        result: Description of its evaluation.
        trials: Its trials.
    """

    policy: EntryPolicy
    source: PolicySource
    result: Result
    trials: Sequence[Trial]


def track_of(policies: Sequence[PolicyProvenance]) -> Track:
    """Returns the track of some policies: that with the most inputs."""
    tracks: list[Track] = ["privileged" if p.track == "privileged" else p.reads for p in policies]
    return min(tracks, key=TRACKS.index)


def plan(
    entry: Entry, protocol: Protocol, scenes: int | None = None, limit_s: float | None = None
) -> list[Planned]:
    """Returns the host's runs of an entry.

    Args:
        entry: The entry.
        protocol: The fresh scenes.
        scenes: Number of first scenes of each task and split; all if None.
        limit_s: Time limit of the import of code of a policy, s.

    Raises:
        FleetToolsError: There is nothing to run; or a policy cannot act, or reads something else
            than the entry says.
    """
    if not entry.file.policies:
        if not entry.result_folders():
            raise ResultError(
                f"{entry.folder} has no policy and no results. Name a policy in entry.yaml: the "
                "host must run it before it has a rank."
            )
        return []
    if (folder := str(entry.folder.absolute())) not in sys.path:
        sys.path.append(folder)  # behind everything that is installed
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # compiled code is no part of an entry
    planned = []
    for policy in entry.file.policies:
        described = [
            describe(
                EvaluationConfig(
                    policy=entry.source(policy),
                    name=entry.name,
                    task=task,
                    scenes=scenes,
                    training_seed=policy.training_seed,
                ),
                limit_s=limit_s,
                protocol=protocol,
            )
            for task in ([None] if policy.tasks == "all" else policy.tasks)
        ]
        trials = [trial for _, _, of_task in described for trial in of_task]
        planned.append(Planned(policy, *described[0][:2], trials))
        if planned[-1].source.kind == "factory":
            path = entry.folder / f"{policy.policy.partition(':')[0]}.py"
            if (
                hashlib.blake2b(path.read_bytes()).hexdigest()[:32]
                != described[0][0].content_digest
            ):
                raise ResultError(
                    f"Python imports another module instead of {path}. Run from another folder, or "
                    "rename the file to policy_NAME.py."
                )
    track = track_of([each.result.policy for each in planned])
    if track != entry.file.track:
        raise ResultError(
            f"{entry.folder} says track: {entry.file.track}, but its policies receive the inputs "
            f"of track {track}. Write track: {track}. (Only policies of the package receive more "
            "than observations.)"
        )
    return planned


def verify_entry(
    root: Path,
    entry: Entry,
    round_: Round,
    levels: Sequence[Protocol],
    workers: WorkerOptions,
    *,
    scenes: int | None = None,
    quiet: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Verification | None:
    """Runs the policies of an entry in the fresh scenes, or resumes, and stores the results.

    Args:
        root: Folder of the leaderboard.
        entry: The entry.
        round_: The present round.
        levels: Levels of the protocol, whose results the entry may hold.
        workers: Number, time limit and place of worker processes.
        scenes: Number of first scenes of each task and split; all if None.
        quiet: Whether to print no progress.
        stop: Whether to begin no more episodes.

    Returns:
        What was stored; None if it was stopped.

    Raises:
        FleetToolsError: There is nothing to run, or it cannot run here.
        OSError: The disk is full or gone; episodes so far are stored.
    """
    if not all(round_.has(entry, policy) for policy in entry.file.policies):
        raise ResultError(
            f"{entry.folder} was submitted or changed after the seed of the current round was "
            f"drawn ({round_.drawn}). Start another round with --new-round; all entries are then "
            "run in new scenes."
        )
    planned = plan(entry, round_.protocol, scenes, workers.timeout)
    evaluations = _run(root, entry, planned, workers, quiet, stop)
    if evaluations is None:
        return None
    before = read_verification(root, entry.name)
    checked = {
        str(folder.relative_to(entry.folder)): found
        for folder in entry.result_folders()
        if (found := _check(entry, folder, levels, planned, workers, round_.seed, before))
    }
    verification = Verification(
        name=entry.name,
        submission=entry.digest,
        verified=now(),
        commitment=round_.commitment,
        evaluations={entry.digests[p.policy]: evaluation_digest(e) for p, e in evaluations},
        checked=checked,
        packages=installed_packages(),
    ).sealed(round_.seed)
    write_file(root / HOST / entry.name / VERIFICATION, verification.to_json() + "\n")
    return verification


def _run(
    root: Path,
    entry: Entry,
    planned: Sequence[Planned],
    workers: WorkerOptions,
    quiet: bool,
    stop: Callable[[], bool],
) -> list[tuple[Planned, Evaluation]] | None:
    """Runs what is missing of the planned trials; returns None if it was stopped."""
    (root / HOST / entry.name).mkdir(parents=True, exist_ok=True)
    total, evaluations = sum(len(each.trials) for each in planned), []
    began, done_now, left = time.monotonic(), 0, total
    with TallyBar(total, "episode", quiet=quiet) as bar:

        def after_each(episode: EpisodeResult) -> None:
            nonlocal done_now, left
            done_now, left = done_now + 1, left - 1
            minutes = left * (time.monotonic() - began) / done_now / 60
            bar.update(episode.outcome, note=f"about {minutes:.1f} min left")
            if done_now == _TIMED and not quiet:
                print(f"{left} episodes left, about {minutes:.1f} min", file=sys.stderr)

        for each in planned:
            folder = evaluation_folder(root, entry, each.policy)
            with EvaluationWriter(folder, each.result) as writer:
                left -= len(writer.records)
                for episode in writer.records:
                    bar.update(episode.outcome)
                run_trials(
                    writer, each.source, each.trials, workers, after_each=after_each, stop=stop
                )
                if {trial.key for trial in each.trials} - {e.key for e in writer.records}:
                    return None
                evaluations.append((each, writer.finish()))
    return evaluations


# --- Submitted results ----------------------------------------------------------------------


def _check(
    entry: Entry,
    folder: Path,
    levels: Sequence[Protocol],
    planned: Sequence[Planned],
    workers: WorkerOptions,
    seed: str,
    before: Verification | None,
) -> tuple[str, str] | None:
    """Returns the hash of a submitted result, and what is wrong with it; None if it is rejected."""
    try:
        evaluation = read_submitted(entry, folder, levels)
    except ResultError:
        return None  # the page says why
    digest = evaluation_digest(evaluation)
    known = before.checked.get(str(folder.relative_to(entry.folder))) if before else None
    if known and known[0] == digest and before and before.submission == entry.digest:
        return known
    claimed = evaluation.result.policy
    source = next((p.source for p in planned if is_same(p.result.policy, claimed)), None)
    if planned and source is None:
        return digest, f"it belongs to {claimed.source!r}, which is not a policy of the entry"
    began = [e for e in evaluation.episodes if e.outcome not in (SIMULATION_ERROR, WORKER_ERROR)]
    suspect = [e for e in evaluation.episodes if e.outcome == SIMULATION_ERROR]
    generator = np.random.default_rng([*f"{seed} {digest}".encode()])
    drawn = generator.choice(len(began), min(CHECKS, len(began)), replace=False) if began else []
    episodes = sorted([*suspect, *(began[k] for k in drawn)], key=lambda e: e.key)
    make = partial(_make_runner, evaluation.result, source, workers.timeout)
    with contextlib.closing(workers.run(episodes, make)) as results:
        pairs = [
            (stored, lost_trial(stored, again.reason) if isinstance(again, LostJob) else again)
            for stored, again in results
        ]
    return digest, _refuted(evaluation.result, pairs, by_policy=source is not None)


def is_same(one: PolicyProvenance, other: PolicyProvenance) -> bool:
    """Returns whether two results are of one policy."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("kind", "content_digest", "training_seed", "track")
    ) and (one.kind == "checkpoint" or one.source == other.source)


def _make_runner(
    result: Result, source: PolicySource | None, limit_s: float
) -> Callable[[EpisodeResult], EpisodeResult]:
    """Returns a function that runs an episode again: by its policy, or from its actions."""
    kwargs = dict(result.policy.env_kwargs) if source else {}
    env_of = present_env(result.protocol, trusted=True, **kwargs)  # the protocol is the host's
    present: tuple[gymnasium.Env, Policy] | None = None

    def run(episode: EpisodeResult) -> EpisodeResult:
        nonlocal present
        env = env_of(episode.task)
        if source is None:
            return run_again(env, result.protocol, episode)
        if present is None or present[0] is not env or source.kind == "built_in":
            present = env, guarded(source, result.policy.track, env, episode.seed, limit_s)
        return run_trial(env, present[1], result.protocol, episode)

    return run


def _refuted(
    result: Result, pairs: Sequence[tuple[EpisodeResult, EpisodeResult]], *, by_policy: bool
) -> str:
    """Returns why episodes that ran again refute a result; empty if they do not.

    On another processor, genuine episodes may end otherwise. But a policy begins alike there.
    """
    others = [pair for pair in pairs if not judge(*pair).agreement.same_outcome]
    elsewhere = other_versions(result.packages) or result.machine.differences(Machine.here())
    if by_policy and elsewhere:
        others = [pair for pair in pairs if not begins_alike(*pair)]
    elif elsewhere and len(others) <= max(1, EXCUSED_SHARE * len(pairs)):
        others = []
    if not others:
        return ""
    stored, again = others[0]
    which = f"episode {stored.index} of {stored.task}, {stored.split}"
    how = "when the entry's policy runs" if by_policy else "from their actions"
    return (
        f"{len(others)} of {len(pairs)} episodes go otherwise {how}, such as {which}: "
        f"{stored.outcome} after {stored.steps} steps in the file, {again.outcome} after "
        f"{again.steps} here"
    )


def begins_alike(
    one: EpisodeResult, other: EpisodeResult, steps: int = 1, tolerance: float = ALIKE
) -> bool:
    """Returns whether two episodes in one scene begin with the same actions, if they have any."""
    first, second = (decode_actions(each.actions)[:steps] for each in (one, other))
    return len(first) == len(second) and bool(np.allclose(first, second, rtol=0, atol=tolerance))


# --- Streams of actions ---------------------------------------------------------------------

SAME_STEPS, SAME_ACTIONS = 5, 1e-3
"""Number of first actions in a scene that two policies have in common, and their tolerance."""

SAME_SHARE = 0.75
"""Share of scenes in which they do, from which on two policies count as the same."""


def same_share(
    one: Sequence[EpisodeResult], other: Sequence[EpisodeResult], *, whole: bool = False
) -> float:
    """Returns the share of common scenes in which two policies begin with the same actions.

    In the same scene, both see the same first observation. So a copy has the same first actions,
    also where rounding or a little noise in its weights lets the episodes drift apart later.

    Args:
        one: Episodes of a policy.
        other: Episodes of the other policy.
        whole: Whether all actions of an episode must be equal, to the bit. This is for policies
            with different observations: an expert that sees well begins like one that knows.
    """
    steps, tolerance = (sys.maxsize, 0.0) if whole else (SAME_STEPS, SAME_ACTIONS)
    others = {episode.key: episode for episode in other if episode.steps}
    pairs = [(e, others[e.key]) for e in one if e.steps and e.key in others]
    same = sum(begins_alike(*pair, steps, tolerance) for pair in pairs)
    return same / len(pairs) if pairs else 0.0


def host_evaluations(
    root: Path, entry: Entry, round_: Round, verification: Verification
) -> Iterator[tuple[EntryPolicy, Evaluation]]:
    """Yields the host's results of each policy of an entry.

    Raises:
        ResultError: It is not the host's, or is not of the present entry.
    """
    if verification.sealed(round_.seed) != verification:
        raise ResultError(
            f"its {VERIFICATION} was not written by the host of this round, or was edited; run "
            "`leaderboard verify` to write it again"
        )
    if verification.submission != entry.digest or verification.name != entry.name:
        raise ResultError(
            "its policies have changed since the host ran them; run `leaderboard verify` again"
        )
    for policy in entry.file.policies:
        evaluation = load_evaluation(evaluation_folder(root, entry, policy))
        digest = verification.evaluations[entry.digests[policy]]
        if evaluation_digest(evaluation) != digest:
            raise ResultError(
                "the host's results of it have changed since the run; run `leaderboard verify` "
                "again"
            )
        result = evaluation.result
        if result.protocol_digest != host_digest(round_.protocol):
            raise ResultError(
                "the host ran it in other scenes or with other task files than those here; begin a "
                "new round (`leaderboard verify --new-round`)"
            )
        if reasons := "; ".join(objections(result, round_.protocol)):
            raise ResultError(reasons)
        yield policy, evaluation
