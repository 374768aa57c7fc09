"""How an episode that ran again agrees with the stored one: in its bits, its end, and in state.

On the processor that made an episode, every bit agrees. Another one may round differently; then the
end and the distance say whether the two are still the same in substance.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WITHIN_M = 0.001
"""Distance up to which two episodes that end alike count as the same in state, m."""


@dataclass(frozen=True)
class Agreement:
    """How two episodes agree.

    Attributes:
        identical: Whether every compared bit agrees.
        same_outcome: Whether both end alike: with the same outcome, after as many steps.
        distance_m: How far apart they are, see `fleet_tools.rollouts.distance`; None if it cannot
            be told.
    """

    identical: bool
    same_outcome: bool
    distance_m: float | None

    def within(self, limit_m: float) -> bool:
        """Returns whether they end alike, at most so far apart, m."""
        near = self.distance_m is not None and self.distance_m <= limit_m
        return self.same_outcome and (self.identical or near)


def counts(agreements: Iterable[Agreement], within_m: float = WITHIN_M) -> dict[str, Any]:
    """Returns numbers of episodes, from strict to loose, as plain JSON data.

    Args:
        agreements: How episodes agree with the stored ones.
        within_m: Largest distance of episodes that count as the same in state, m.
    """
    agreements = list(agreements)
    distances = [each.distance_m for each in agreements if each.distance_m is not None]
    return {
        "episodes": len(agreements),
        "identical": sum(each.identical for each in agreements),
        "same_outcome": sum(each.same_outcome for each in agreements),
        "within": sum(each.within(within_m) for each in agreements),
        "within_m": within_m,
        "measured": len(distances),
        "largest_distance_m": max(distances, default=None),
    }
