"""Facts of results for both pages: who made them where, what ran again, and how that ended."""

from collections.abc import Mapping, Sequence

from fleet_tools.leaderboard.records import Certificate, StepVerdicts, Verification
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.leaderboard.wording import certificate_text, readable, steps_text
from fleet_tools.storage.provenance import Machine


def facts(standing: Standing) -> list[list[tuple[str, str]]]:
    """Returns the provenance of each result of a method, as names and values."""
    return [_facts(submission) for submission in standing.submissions]


def _facts(submission: Submission) -> list[tuple[str, str]]:
    result = submission.evaluation.result
    policy, machine = result.policy, result.machine
    env_kwargs = policy.env_kwargs or {"obs_mode": "state"}
    pairs = [
        ("result", submission.folder),
        ("policy", f"{policy.source} ({readable(policy.kind)})"),
        ("hash", policy.content_digest or ""),
        ("training seed", "" if policy.training_seed is None else str(policy.training_seed)),
        ("environment", ", ".join(f"{name}={value}" for name, value in env_kwargs.items())),
        ("versions", ", ".join(f"{name} {version}" for name, version in result.packages.items())),
        ("hardware", _hardware(machine)),
        ("command", result.command),
        ("verified", _verification(submission.verification)),
        ("smaller steps", _certificate(submission.certificate)),
    ]
    return [(name, value) for name, value in pairs if value]


def _certificate(certificate: Certificate | None) -> str:
    if certificate is None:
        return ""
    text = certificate_text([certificate])
    marks = "; ".join(_edge(each, certificate.steps_ms) for each in certificate.near_the_edge)
    return f"{text}: {marks}" if marks else text


def _edge(episode: StepVerdicts, steps_ms: Sequence[float]) -> str:
    pairs = list(zip(steps_ms, episode.successes, strict=True))
    solved = steps_text([step for step, success in pairs if success])
    failed = steps_text([step for step, success in pairs if not success])
    told = f"success at {solved}, failure at {failed}"
    return f"episode {episode.index} of {episode.task}, {episode.split} ({told})"


def _hardware(machine: Machine) -> str:
    return (
        f"{machine.processor}, {machine.cores:g} cores, {machine.memory_gib:g} GiB; "
        f"{machine.system}"
    )


def _verification(verification: Verification | None) -> str:
    if verification is None:
        return ""
    versions = _instead("the same versions", "other versions", verification.other_versions)
    machine = _instead("", "another machine", verification.other_machine)
    where = f"{versions}, {machine}," if machine else versions
    differences = "".join(f" {difference}." for difference in verification.differences)
    episodes, same_outcome = verification.episodes, verification.same_outcome
    by = "by its policy" if verification.by == "policy" else "from their actions"
    return (
        f"{same_outcome} of {episodes} episodes ended alike when they ran again {by}, "
        f"{verification.same} of them with the same bits{_states(verification)}, on {where} and "
        f"{_hardware(verification.machine)}, drawn with seed {verification.seed}.{differences}"
    )


def _states(verification: Verification) -> str:
    """Returns how far apart the last states are; empty where the result does not hold them."""
    if verification.largest_distance_m is None:
        return ""
    return (
        f", {verification.within} of {verification.measured} with a last state within "
        f"{verification.within_m:g} m (largest distance {verification.largest_distance_m:.2g} m)"
    )


def _instead(same: str, other: str, differing: Mapping[str, tuple[str, str | None]]) -> str:
    pairs = [f"{name} {here} instead of {then}" for name, (then, here) in differing.items()]
    return f"{other} ({', '.join(pairs)})" if pairs else same
