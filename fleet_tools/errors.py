"""Every error that Fleet-Tools raises on purpose; merging adds its own, of the same base.

Each says what was given, what exists and how to mend it, and is raised before anything changes.
"""

import difflib
from collections.abc import Iterable


class FleetToolsError(Exception):
    """Base of all errors of this package."""


class ConfigError(FleetToolsError, ValueError):
    """A task file, a scene or a model folder says something that it may not say."""


class UnknownNameError(FleetToolsError, ValueError):
    """A name that nothing answers to.

    Args:
        what: What kind of thing was asked for, such as "hammer" or "keypoint".
        given: The name asked for.
        known: The names that exist.
        remedy: How else to get what was wanted, where there is a way.
    """

    def __init__(self, what: str, given: object, known: Iterable[str], remedy: str = "") -> None:
        known = sorted(known)
        nearest = difflib.get_close_matches(str(given), known, n=1, cutoff=0.5)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        listing = ", ".join(known) if known else "none"
        super().__init__(f"There is no {what} {given!r}{hint} Known: {listing}. {remedy}".rstrip())
        self.given, self.known = given, known

    def __reduce__(self):  # an exception with its own arguments must say how it is pickled
        return _restore, (type(self), self.args, self.__dict__)


class InvalidActionError(FleetToolsError, ValueError):
    """An action of the wrong shape or kind, or with NaN or infinity in it."""


class EpisodeOverError(FleetToolsError, RuntimeError):
    """`step` was called where there is no episode in progress."""


class SimulationError(FleetToolsError, RuntimeError):
    """The simulator could not go on: its solver failed, or its state is no longer finite."""


class MissingLibraryError(FleetToolsError, ImportError):
    """A library of the system is absent; the message holds the line that installs it."""


class RenderServerError(FleetToolsError, RuntimeError):
    """A render server does not answer, or cannot render; the message says what to do."""


class ForkedRendererError(FleetToolsError, RuntimeError):
    """A process renders that was forked from one which had a renderer; how to start it instead."""


class InfeasibleError(FleetToolsError, RuntimeError):
    """No plan satisfies the task's constraints.

    Args:
        message: What was to be solved.
        violations: By how much each violated constraint is exceeded, such as
            {"point_to_point(head, head)": "0.120 m, at most 0.002 m"}.
    """

    def __init__(self, message: str, violations: dict[str, str]) -> None:
        parts = "; ".join(f"{name}: {amount}" for name, amount in violations.items())
        super().__init__(f"{message} Violated: {parts or 'none beyond tolerance'}.")
        self.violations = violations

    def __reduce__(self):
        return _restore, (type(self), self.args, self.__dict__)


class DatasetError(FleetToolsError, RuntimeError):
    """A data set that cannot be read, or into which nothing may be written."""


class ResultError(FleetToolsError, RuntimeError):
    """An evaluation that cannot be read, is not what it says, or may not be gone on with."""


class PolicyError(FleetToolsError, RuntimeError):
    """A policy from outside cannot be found or made, or raised an error of its own."""


class WorkersError(FleetToolsError, RuntimeError):
    """Worker processes cannot be started, or a cluster cannot be reached."""


def _restore(cls: type, args: tuple, attributes: dict) -> Exception:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
