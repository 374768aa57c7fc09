"""Configurations of heads, and of how a policy executes the chunks of actions that they give."""

from typing import TYPE_CHECKING, Annotated, Literal

import pydantic

from fleet_tools.config.values import Count, NonNegative, Positive, Value

if TYPE_CHECKING:
    from fleet_tools.baselines.policies.denoising import Diffusion, Flow
    from fleet_tools.baselines.policies.heads import DenoisingHead, LinearHead

Layers = Annotated[Count, pydantic.Field(le=1000)]
Units = Annotated[Count, pydantic.Field(le=100_000)]
Evaluations = Annotated[Count, pydantic.Field(le=10_000)]


class LinearHeadConfig(Value):
    """A linear layer.

    Attributes:
        loss: "squared": it learns the mean of what is demonstrated; "absolute": the median, with
            gradients that do not vanish with small errors, as in ACT (Zhao et al. 2023).
    """

    type: Literal["linear"] = "linear"
    loss: Literal["squared", "absolute"] = "squared"

    def create(self, units: int, numbers: int) -> "LinearHead":
        """Returns a new head.

        Args:
            units: Number of units that it reads.
            numbers: Number of entries of a chunk of actions.
        """
        from fleet_tools.baselines.policies.heads import LinearHead

        return LinearHead(units, numbers)


class FlowHeadConfig(Value):
    """Flow matching (Lipman et al. 2023; on straight paths as in Liu et al. 2023).

    Attributes:
        layers: Number of hidden layers of the network that gives the velocity.
        width: Number of units of each of them.
        unit: Number of an action that counts as 1 beside the noise, whose deviation is 1; that of
            demonstrated actions is about 0.2.
        steps: Number of Euler steps from noise to actions.
    """

    type: Literal["flow"] = "flow"
    layers: Layers = 2
    width: Units = 256
    unit: Positive = 0.25
    steps: Evaluations = 10

    def create(self, units: int, numbers: int) -> "DenoisingHead":
        """Returns a new head; see `LinearHeadConfig.create`."""
        from fleet_tools.baselines.policies.heads import DenoisingHead

        return DenoisingHead(self, units, numbers)

    def process(self) -> "Flow":
        """Returns the process between noise and actions."""
        from fleet_tools.baselines.policies.denoising import Flow

        return Flow(self.unit, self.steps)


class DiffusionHeadConfig(Value):
    """Denoising diffusion (Ho et al. 2020; for policies Chi et al. 2023), sampled by DDIM.

    Attributes:
        layers: Number of hidden layers of the network that predicts the noise.
        width: Number of units of each of them.
        unit: Number of an action that counts as 1; see `FlowHeadConfig`.
        levels: Number of noise levels in training.
        steps: Number of levels that sampling visits (Song et al. 2021), at most `levels`.
    """

    type: Literal["diffusion"] = "diffusion"
    layers: Layers = 2
    width: Units = 256
    unit: Positive = 0.25
    levels: Evaluations = 100
    steps: Evaluations = 10

    @pydantic.model_validator(mode="after")
    def _steps_are_levels(self) -> "DiffusionHeadConfig":
        if self.steps > self.levels:
            raise ValueError(f"{self.steps} steps visit more than all of {self.levels} levels")
        return self

    def create(self, units: int, numbers: int) -> "DenoisingHead":
        """Returns a new head; see `LinearHeadConfig.create`."""
        from fleet_tools.baselines.policies.heads import DenoisingHead

        return DenoisingHead(self, units, numbers)

    def process(self) -> "Diffusion":
        """Returns the process between noise and actions."""
        from fleet_tools.baselines.policies.denoising import Diffusion

        return Diffusion(self.unit, self.levels, self.steps)


DenoisingConfig = FlowHeadConfig | DiffusionHeadConfig
HeadConfig = Annotated[LinearHeadConfig | DenoisingConfig, pydantic.Field(discriminator="type")]


class EnsembleConfig(Value):
    """Temporal ensembling (Zhao et al. 2023, ACT): the mean of all predictions for a step.

    Attributes:
        decay: m of the weights exp(-m i), where i counts predictions from the oldest on.
    """

    type: Literal["ensemble"] = "ensemble"
    decay: NonNegative = 0.01


class HorizonConfig(Value):
    """The first actions of a chunk one after another, then those of the next one.

    Attributes:
        steps: Number of actions that are executed of a chunk.
    """

    type: Literal["horizon"] = "horizon"
    steps: Count = 1


ExecutionConfig = Annotated[EnsembleConfig | HorizonConfig, pydantic.Field(discriminator="type")]
