"""Every error that merging raises on purpose: what was given, and how to mend it."""

from fleet_tools.errors import FleetToolsError


class SymmetryError(FleetToolsError, ValueError):
    """Base of what is wrong with a table of axes, or does not fit it."""


class AxisSyntaxError(SymmetryError):
    """A string of axes that cannot be read, or strings that contradict each other."""


class UncoveredParameterError(SymmetryError):
    """A state dict holds what the table does not speak of, or lacks what it does."""


class AxisSizeError(SymmetryError):
    """A tensor's shape does not fit its axes, or a size cannot be told from the shapes."""


class PermutationError(SymmetryError):
    """Not an element of the group: a name, a shape, a repeated index, or no inverse."""


class ScalingError(SymmetryError):
    """Scales that are no positive numbers of units, or a norm that has no least one."""


class NotInvariantError(SymmetryError):
    """The model's outputs change under a permutation that the table calls free."""


class ModelMismatchError(FleetToolsError, ValueError):
    """Models that are not of one form: their keys, shapes or dtypes differ."""


class FleetError(FleetToolsError, ValueError):
    """What is to be merged does not fit together, or a method needs what was not given."""


class MessageError(FleetToolsError, ValueError):
    """Bytes that are no message between merging and a robot, or hold more or less than they may."""
