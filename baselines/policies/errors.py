"""Errors of learned policies."""

from fleet_tools.errors import FleetToolsError


class LayoutError(FleetToolsError, ValueError):
    """Observations or actions whose layout is not the one that a policy reads or returns."""


class CheckpointError(FleetToolsError, RuntimeError):
    """A file that is not a complete checkpoint, or one that this version cannot read."""


class IncompatiblePoliciesError(FleetToolsError, ValueError):
    """Policies that are to be merged, but have different blueprints."""
