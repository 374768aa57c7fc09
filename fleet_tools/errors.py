"""The errors that Fleet-Tools raises on purpose (fleet-merging has its own).

Each says what was given, what exists and how to mend it, and is raised before anything changes.
"""

import difflib
import reprlib
import sys
from collections.abc import Iterable

_LONGEST = 300
"""Longest text of a given value in a message."""

# Aliases make a few lines of YAML into data whose full representation fills the memory.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 400


def shown(given: object) -> str:
    """Returns a short text of a given value, for a message."""
    try:
        text = _SHORT.repr(given)
    except Exception:  # such as an integer that is too long to be written
        return f"<{type(given).__name__}>"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


class FleetToolsError(Exception):
    """Base of all errors of this package."""


def known_errors() -> tuple[type[Exception], ...]:
    """Returns the bases of the errors that are raised on purpose, for `except`.

    fleet-merging's base is one of them once that library is imported.
    """
    merging = sys.modules.get("fleet_merging.errors")
    return (FleetToolsError,) if merging is None else (FleetToolsError, merging.MergingError)


class ConfigError(FleetToolsError, ValueError):
    """A task file, a scene, a model folder or an argument has content that is not allowed."""


class UnknownNameError(FleetToolsError, ValueError):
    """A name that does not exist.

    Args:
        what: Kind of thing that was asked for, such as "hammer" or "keypoint".
        given: The name asked for.
        known: The names that exist.
        remedy: Another way to get what was wanted, if there is one.
    """

    def __init__(self, what: str, given: object, known: Iterable[str], remedy: str = "") -> None:
        known = sorted(known)
        name = given[:_LONGEST] if isinstance(given, str) else ""
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        listing = ", ".join(known) if known else "none"
        super().__init__(
            f"Unknown {what}: {shown(given)}.{hint} Known: {listing}. {remedy}".rstrip()
        )
        self.given, self.known = given, known

    def __reduce__(self) -> tuple:
        """Pickles all attributes, although the constructor takes other arguments."""
        return _restore, (type(self), self.args, self.__dict__)


def require_name(what: str, given: object, known: Iterable[str], remedy: str = "") -> None:
    """Checks that a name exists.

    Args:
        what: Kind of thing that was asked for.
        given: The name asked for, or anything else.
        known: The names that exist.
        remedy: Another way to get what was wanted, if there is one.

    Raises:
        UnknownNameError: It does not, or is no text.
    """
    known = list(known)
    if not isinstance(given, str) or given not in known:
        raise UnknownNameError(what, given, known, remedy)


class InvalidActionError(FleetToolsError, ValueError):
    """An action with a wrong shape or dtype, or with NaN or infinity in it."""


class EpisodeOverError(FleetToolsError, RuntimeError):
    """The environment was used where no episode is in progress."""


class SimulationError(FleetToolsError, RuntimeError):
    """The simulation cannot continue: the solver failed, or the state is not finite."""


class MissingLibraryError(FleetToolsError, ImportError):
    """A library is absent; the message holds the command that installs it."""


class UntestedDrakeError(FleetToolsError, ImportError):
    """The installed Drake is none of the tested releases; the message says how to get one."""


class OrderDependenceError(FleetToolsError):
    """A policy does not repeat its actions, so that results depend on the order of episodes."""


class NativeLibraryError(FleetToolsError, RuntimeError):
    """A native library ended its process, raised an error, or did not return, for some input."""


class RenderServerError(FleetToolsError, RuntimeError):
    """A render server or Meshcat does not answer, or cannot render. The message has a remedy."""


class ForkedRendererError(FleetToolsError, RuntimeError):
    """Rendering in a process that was forked from one with a renderer."""


class InfeasibleError(FleetToolsError, RuntimeError):
    """No plan satisfies the task's constraints.

    Args:
        message: The problem that was to be solved.
        violations: By how much each violated constraint is exceeded, such as
            {"point_to_point(head, head)": "0.120 m, at most 0.002 m"}.
    """

    def __init__(self, message: str, violations: dict[str, str]) -> None:
        parts = "; ".join(f"{name}: {amount}" for name, amount in violations.items())
        super().__init__(f"{message} Violated: {parts or 'none beyond tolerance'}.")
        self.violations = violations

    def __reduce__(self) -> tuple:
        """Pickles all attributes, although the constructor takes other arguments."""
        return _restore, (type(self), self.args, self.__dict__)


class DatasetError(FleetToolsError, RuntimeError):
    """A dataset that cannot be read, or that must not be written to."""


class ResultError(FleetToolsError, RuntimeError):
    """An evaluation that cannot be read, contradicts itself, or cannot be resumed."""


class PolicyError(FleetToolsError, RuntimeError):
    """A foreign policy cannot be found or made, or raised an error of its own."""


class PredicateError(FleetToolsError, RuntimeError):
    """A function that a task file names as a predicate raised an error, or gave no verdict."""


class WorkersError(FleetToolsError, RuntimeError):
    """Worker processes cannot be started, or a cluster cannot be reached."""


class LostClusterError(WorkersError, ConnectionError):
    """Essential processes of the Ray cluster have died. Stored work can be resumed.

    It is an error of the system, too, as a full disk is, so that programs end alike after both.
    """


class DiskError(FleetToolsError, OSError):
    """The disk is full, read-only or broken. Work finished before is stored."""


def _restore(cls: type[Exception], args: tuple, attributes: dict) -> Exception:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
