"""Errors of merging; each message has the given value and a remedy."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Self


class MergingError(Exception):
    """Base of all errors that this library raises on purpose."""


class UnknownChoiceError(MergingError, ValueError):
    """A name that does not exist."""

    @classmethod
    def of(cls, kind: str, given: str, known: Iterable[str], remedy: str = "") -> Self:
        """Returns the error with the nearest name and all known ones in its message.

        `kind` is the kind of the name, such as "merging method", and `remedy` another way to the
        same end.
        """
        names, given = sorted(known), given[:300]
        nearest = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        listing = ", ".join(names) or "none"
        return cls(f"Unknown {kind}: {given!r}.{hint} Known: {listing}. {remedy}".rstrip())


class SymmetryError(MergingError, ValueError):
    """Base of errors in a table of axes, and of values that do not fit a table."""


class AxisSyntaxError(SymmetryError):
    """A string of axes that cannot be read, or strings that contradict each other."""


class UncoveredParameterError(SymmetryError):
    """A state dict has an entry that the table lacks, or lacks one that the table has."""


class AxisSizeError(SymmetryError):
    """A tensor's shape does not fit its axes, or the shapes do not determine a size."""


class PermutationError(SymmetryError):
    """Not an element of the group: a wrong name, shape or index, or no inverse."""


class NotInvariantError(SymmetryError):
    """The model's outputs change under a permutation of an axis that the table calls free."""


class WithoutEffectError(NotInvariantError):
    """Units that a table calls free, but that affect no output; `names` has their names."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = names


class SymmetryWarning(UserWarning):
    """A table that a check did not refute, but could not test completely."""


class DerivationError(SymmetryError):
    """A model without a derivable table of axes."""


class ModelMismatchError(MergingError, ValueError):
    """Models of different forms: their names, shapes or dtypes differ."""


class MergeError(MergingError, ValueError):
    """A merge problem is inconsistent, or lacks a method's inputs."""


class UnsoundMergeError(MergeError):
    """A merged model of another form than the models', or with unusable numbers."""


class MessageError(MergingError, ValueError):
    """Bytes that are no message between merging and a data holder, or have invalid content."""


def require_choice(what: str, given: str, known: Iterable[str]) -> None:
    """Raises a `MergeError` unless a value is one of the known ones."""
    if given not in known:
        raise MergeError(f"{what} is {given!r}; known are {', '.join(known)}.")


def listed(items: Sequence[str], most: int = 6) -> str:
    """Returns the first items, and the number of the others, for messages."""
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + rest
