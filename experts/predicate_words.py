"""Predicates that do not hold, in words."""

from collections.abc import Sequence
from typing import cast

from fleet_tools.config.predicates import Predicate
from fleet_tools.config.values import Value
from fleet_tools.envs.success import Verdict, judge
from fleet_tools.sim.world_state import WorldState


def unmet_predicates(
    predicates: Sequence[Predicate], initial: WorldState, present: WorldState
) -> tuple[str, ...]:
    """Returns descriptions of the predicates that do not hold.

    Args:
        predicates: The predicates.
        initial: World state at the episode's start.
        present: World state now.
    """
    verdicts = [(predicate, judge(predicate, initial, present)) for predicate in predicates]
    return tuple(
        describe(predicate, verdict) for predicate, verdict in verdicts if not verdict.holds
    )


def describe(predicate: Predicate, verdict: Verdict) -> str:
    """Describes a predicate and its verdict, such as "joint_displacement slide 0.0003 of 0.001".

    The value follows from progress, which is value / threshold of what is to reach a threshold
    (`at_least`), and limit / value of what is to stay below a limit (`within`, `below`).
    """
    words, measure = [predicate.type], ""
    for name, value in predicate:
        if name == "type":
            continue
        if isinstance(value, Value):  # another predicate, with the same verdict
            words.append(describe(cast(Predicate, value), verdict))
        elif name.startswith("at_least"):
            measure = f" {verdict.progress * value:.3g} of {value:g}"
        elif name.startswith(("within", "below")):
            measure = f" {value / max(verdict.progress, 1e-9):.3g}, at most {value:g}"
        elif isinstance(value, bool):
            words += [] if value else [f"not {name}"]
        elif isinstance(value, list | tuple):
            words.append(" and ".join(map(str, value)))
        else:
            words.append(str(value))
    return " ".join(words) + measure
