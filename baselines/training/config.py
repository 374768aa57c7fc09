"""Configuration of training."""

import math
from typing import Annotated, Literal

import pydantic

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, Number, Positive, Seed

Change = Annotated[Number, pydantic.Field(ge=0, lt=1)]
"""Size of a change, as a fraction."""


class ImageAugmentation(OptionGroup):
    """How the colours of images differ from those of the demonstrations, anew in every batch.

    Without it, a policy can tell the scenes of few demonstrations by their colours, and learn
    their actions by heart.
    """

    color_gain: Change = 0.0
    """Largest relative change of each channel, which scales all pixels."""
    color_offset: Change = 0.0
    """Largest change that is added to all pixels of a channel, as a fraction of full brightness."""

    @property
    def any(self) -> bool:
        """Whether anything is done."""
        return max(self.color_gain, self.color_offset) > 0


class TrainingConfig(OptionGroup):
    """Behaviour cloning by Adam; epochs and batch size are the paper's (appendix, Fleet-Tools)."""

    epochs: Count = 200
    """Number of passes over all demonstrations."""
    batch_size: Count = 512
    """Number of steps in a batch; policies with memory learn from whole episodes, of about as many
    steps together."""
    learning_rate: Positive = 1e-3
    """Learning rate of Adam; the default is the paper's for Meta-World."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of the learning rate: constant as in the paper, or cosine, which falls to 0 at the
    last epoch (Loshchilov and Hutter 2017, without restarts)."""
    gradient_norm: Positive = 1.0
    """Norm to which longer gradients are shortened (Pascanu et al. 2013)."""
    images: ImageAugmentation = ImageAugmentation()
    """Augmentation of colour images."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the computation; weights and sums are in float32 in any case."""
    seed: Seed = 0
    """Seed of the initial weights, the validation split and the order of batches."""

    def rate(self, epochs_done: float) -> float:
        """Returns the learning rate after a number of epochs, which may be fractional."""
        if self.schedule == "constant":
            return self.learning_rate
        done = min(epochs_done / self.epochs, 1.0)
        return self.learning_rate * (1 + math.cos(math.pi * done)) / 2
