"""Explanation in words of an episode: a pure function of what the expert recorded."""

from collections import Counter
from collections.abc import Iterator, Sequence

from fleet_tools.experts.assessment import Failure


def explanation(
    failures: Sequence[Failure],
    planning_errors: Sequence[str],
    stage: str,
    unmet: Sequence[str],
) -> str | None:
    """Explains an episode; None if there is nothing to explain.

    Args:
        failures: The attempts that failed, in order.
        planning_errors: Messages of the planner where it found no plan.
        stage: Keyframe to which the expert was on its way at the end, or "retreat" or "planning".
        unmet: Success predicates that do not hold at the end.
    """
    if not (failures or planning_errors or unmet):
        return None
    attempts = len(failures) + (stage not in ("retreat", "planning"))
    parts = [f"{attempts} attempt{'' if attempts == 1 else 's'}"]
    parts += _failed_attempts(failures)
    parts += [f"no plan: {error}" for error in dict.fromkeys(planning_errors)]
    lacking = f"without {_joined(unmet)}" if unmet else "with all predicates of success"
    return "; ".join([*parts, f"ended in {stage} {lacking}"])


def _failed_attempts(failures: Sequence[Failure]) -> Iterator[str]:
    """Yields a description for each keyframe at which attempts failed, of the last one."""
    last = {failure.keyframe: failure for failure in failures}
    for keyframe, count in Counter(failure.keyframe for failure in failures).items():
        yield f"{count} failed at keyframe {keyframe}: {_joined(last[keyframe].unmet)}"


def _joined(descriptions: Sequence[str]) -> str:
    return " and ".join(f"({each})" for each in descriptions)
