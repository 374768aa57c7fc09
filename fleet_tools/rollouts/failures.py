"""Why episodes had no success, as summaries of collections and evaluations list it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from fleet_tools.policies.policy import EXPLANATION


class Record(Protocol):
    """What records of datasets and of evaluations have in common."""

    @property
    def outcome(self) -> str:
        """See `fleet_tools.envs.outcomes`."""
        ...

    @property
    def success(self) -> bool:
        """Whether the outcome is a success."""
        ...

    @property
    def error(self) -> str | None:
        """Error message, if there was an error."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """What the policy stored with the episode."""
        ...


R = TypeVar("R", bound=Record)


def failure_causes(records: Iterable[R], name: Callable[[R], str]) -> dict[str, dict[str, Any]]:
    """Returns the number of failed episodes by outcome, each with an example.

    Args:
        records: Records of episodes; those with success are left out.
        name: Returns the name of a record's episode in the example.
    """
    causes: dict[str, dict[str, Any]] = {}
    for record in records:
        if not record.success:
            why = record.error or record.info.get(EXPLANATION)
            example = f"{name(record)}: {why}" if why else name(record)
            cause = causes.setdefault(record.outcome, {"count": 0, "example": example})
            cause["count"] += 1
    return causes


def cause_lines(causes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a line of text for each outcome of `failure_causes`."""
    return [
        f"  {cause['count']} ended as {outcome}, such as {cause['example']}"
        for outcome, cause in causes.items()
    ]
