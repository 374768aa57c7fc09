"""How a policy is trained, as a value."""

import math
from typing import Literal

import pydantic

from fleet_tools.config.values import Count, Positive, Value


class TrainingConfig(Value):
    """Behaviour cloning by Adam; epochs and batch are the paper's (appendix, Fleet-Tools).

    Attributes:
        epochs: Over all demonstrations.
        batch_size: Steps in a batch; policies with memory take whole episodes, of about as many
            steps together.
        learning_rate: Of Adam; the paper's for Meta-World.
        schedule: "constant" as in the paper, or "cosine", which falls to 0 at the last epoch
            (Loshchilov and Hutter 2017, without restarts).
        gradient_norm: Longer gradients are shortened to it (Pascanu et al. 2013).
        precision: "bfloat16" computes in it, and keeps weights and sums in float32.
        seed: Of everything that is drawn.
    """

    epochs: Count = 200
    batch_size: Count = 512
    learning_rate: Positive = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    gradient_norm: Positive = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: pydantic.NonNegativeInt = 0

    def rate(self, epochs_done: float) -> float:
        """Returns the learning rate after so many epochs, whole or not."""
        if self.schedule == "constant":
            return self.learning_rate
        done = min(epochs_done / self.epochs, 1.0)
        return self.learning_rate * (1 + math.cos(math.pi * done)) / 2
