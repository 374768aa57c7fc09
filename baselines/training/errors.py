"""What training raises on purpose."""

from fleet_tools.errors import FleetToolsError


class TrainingError(FleetToolsError, RuntimeError):
    """A training that cannot be begun or gone on with."""


class DivergedError(FleetToolsError, RuntimeError):
    """The loss is no longer finite. The weights of the step before are kept."""
