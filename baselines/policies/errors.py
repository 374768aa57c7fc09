"""What policies raise on purpose."""

from fleet_tools.errors import FleetToolsError


class LayoutError(FleetToolsError, ValueError):
    """Observations or actions are laid out in another way than a policy reads or writes them."""


class CheckpointError(FleetToolsError, RuntimeError):
    """A file that is no whole checkpoint of a policy, or one that this version cannot run."""


class OtherPolicyError(FleetToolsError, ValueError):
    """Policies that are to be merged read, scale or answer in different ways."""
