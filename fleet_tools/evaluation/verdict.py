"""The comparison of a stored result of an episode with that of the episode run again."""

from dataclasses import dataclass

from fleet_tools.evaluation.result import EpisodeResult
from fleet_tools.rollouts.agreement import Agreement, distance_of_points

_BITS = ("state_digest",)
_END = ("scene_digest", "steps", "outcome", "success", "success_once")


@dataclass(frozen=True)
class Verdict:
    """What came of an episode that ran again.

    Attributes:
        differences: A sentence for each difference, such as "steps: 31 in the file, 60 here"; none
            if the stored result is right bit for bit.
        agreement: How it agrees. The outcome is the same if it is so in the same scene, after as
            many steps, and with or without success after any of them, whatever the bits. The
            distance is that of the last states; results of before these were stored have none.
    """

    differences: tuple[str, ...]
    agreement: Agreement


def judge(stored: EpisodeResult, again: EpisodeResult) -> Verdict:
    """Compares the result of an episode that ran again with the stored one."""
    differing = [name for name in (*_END, *_BITS) if getattr(stored, name) != getattr(again, name)]
    distance_m = distance_of_points(stored.final_points_m, again.final_points_m)
    differences = [
        f"{name}: {getattr(stored, name)} in the file, {getattr(again, name)} here"
        for name in differing
    ]
    if "state_digest" in differing and distance_m is not None:
        differences.append(f"the last states are {distance_m:.2g} m apart")
    same_outcome = not {*differing}.intersection(_END)
    return Verdict(tuple(differences), Agreement(not differing, same_outcome, distance_m))
