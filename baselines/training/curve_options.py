"""Options of programs whose runs have curves, see `training.curves`."""

from fleet_tools.config.options import OptionGroup
from fleet_tools.utils.libraries import require

PURPOSE = "write curves"
"""What the libraries are needed for."""


class CurveOptions(OptionGroup):
    """Curves of losses, rates and successes."""

    tensorboard: bool = False
    """Write them for TensorBoard: `tensorboard --logdir OUTPUT`."""
    wandb: str | None = None
    """Send them to this project of Weights & Biases, over the network and with your account there;
    WANDB_MODE=offline keeps them in OUTPUT."""

    def require_libraries(self) -> None:
        """Imports what the options need.

        Raises:
            MissingLibraryError: A library is not installed.
        """
        if self.tensorboard:
            require("tensorboard", PURPOSE)
        if self.wandb is not None:
            require("wandb", PURPOSE)
