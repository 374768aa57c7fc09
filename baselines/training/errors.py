"""Errors of training."""

from fleet_tools.errors import FleetToolsError


class TrainingError(FleetToolsError, RuntimeError):
    """A training run that cannot be begun or resumed."""


class DivergedError(FleetToolsError, RuntimeError):
    """A loss or weights that are not finite; earlier states are kept."""
