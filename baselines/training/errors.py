"""What training raises on purpose."""

from fleet_tools.errors import FleetToolsError


class TrainingError(FleetToolsError, RuntimeError):
    """A training that cannot be begun or gone on with."""


class DivergedError(FleetToolsError, RuntimeError):
    """A loss or weights that are no longer finite; what was stored before is kept."""
