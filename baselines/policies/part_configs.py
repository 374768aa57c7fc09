"""Configurations of the parts of a policy: bodies, encoders, heads, and what is executed.

Each is a frozen value that creates its module, and is imported without PyTorch.
"""

from typing import TYPE_CHECKING, Annotated, Literal, Self

import pydantic

from fleet_tools.config.values import Count, CountOrZero, NonNegative, Positive, Value

if TYPE_CHECKING:
    from fleet_tools.baselines.policies.bodies import MLPBody, RecurrentBody
    from fleet_tools.baselines.policies.encoders import PointNetEncoder
    from fleet_tools.baselines.policies.heads import DenoisingHead, Diffusion, Flow, LinearHead
    from fleet_tools.baselines.policies.resnet import ResNetEncoder
    from fleet_tools.baselines.policies.transformer import TransformerBody

Depth = Annotated[Count, pydantic.Field(le=1000)]
"""A number of layers, which are made one by one."""

Width = Annotated[Count, pydantic.Field(le=100_000)]
"""A number of units."""


class MLPConfig(Value):
    """Layers of ReLU units, without memory.

    Attributes:
        layers: Number of hidden layers; the default of all bodies is the paper's, 4. With none, the
            policy is linear in what it reads.
        width: Number of units of each layer.
        task_conditioning: "input": the task is known from the features alone; "film": the task also
            scales and shifts the units of every layer (FiLM, Perez et al. 2018).
    """

    type: Literal["mlp"] = "mlp"
    layers: Annotated[CountOrZero, pydantic.Field(le=1000)] = 4
    width: Width = 512
    task_conditioning: Literal["input", "film"] = "input"

    def create(self, inputs: int, task: int = 0) -> "MLPBody":
        """Returns a new body.

        Args:
            inputs: Number of features that it reads.
            task: Number of further features that say which task it is; 0 without conditioning.
        """
        from fleet_tools.baselines.policies.bodies import MLPBody

        return MLPBody(self, inputs, task)


class RecurrentConfig(Value):
    """Stacked recurrent layers, whose state lasts for an episode.

    Attributes:
        type: Kind of the layers; "elman" has tanh units (the paper's eq. rnn).
        layers: Number of layers; each reads the one below.
        width: Number of units of each layer.
    """

    type: Literal["elman", "lstm", "gru"] = "elman"
    layers: Depth = 4
    width: Width = 512

    def create(self, inputs: int) -> "RecurrentBody":
        """Returns a new body.

        Args:
            inputs: Number of features that it reads.
        """
        from fleet_tools.baselines.policies.bodies import RecurrentBody

        return RecurrentBody(self, inputs)


class TransformerConfig(Value):
    """Causal self-attention over the steps of an episode.

    Attributes:
        layers: Number of layers; each attends to the one below.
        width: Width of the residual stream.
        heads: Number of heads of each layer, which divides the width.
        feedforward: Number of units of each layer's feedforward part.
        context: Number of steps that a layer attends to, including the present one.
        task_conditioning: "input": the task is known from the features alone; "token": it is also
            the first token of the sequence, to which all steps attend.
    """

    type: Literal["transformer"] = "transformer"
    layers: Depth = 4
    width: Width = 512
    heads: Width = 8
    feedforward: Width = 2048
    context: Width = 32
    task_conditioning: Literal["input", "token"] = "input"

    @pydantic.model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.width}")
        return self

    def create(self, inputs: int, task: int = 0) -> "TransformerBody":
        """Returns a new body; see `MLPConfig.create`."""
        from fleet_tools.baselines.policies.transformer import TransformerBody

        return TransformerBody(self, inputs, task)


class PointNetConfig(Value):
    """One MLP for every point of a cloud, and the maximum over points (Qi et al. 2017).

    Attributes:
        widths: Number of units of each layer.
        unit_m: Length that counts as 1, m: about the size of a tool, so that coordinates are
            neither much smaller nor much larger than the mask beside them.
    """

    widths: Annotated[tuple[Width, ...], pydantic.Field(min_length=1)] = (64, 128, 256)
    unit_m: Positive = 0.1

    def create(self) -> "PointNetEncoder":
        """Returns a new encoder of point clouds."""
        from fleet_tools.baselines.policies.encoders import PointNetEncoder

        return PointNetEncoder(self)


class ResNet18Config(Value):
    """The residual network of 18 layers (He et al. 2016), without its classifier.

    Attributes:
        width: Number of channels of the first stage; each further one doubles it, and halves
            width and height.
        stages: Number of stages; fewer than the original's four leave more pixels for `pooling`.
        pooling: How channels become features: "mean" over pixels, as in the original, or
            "position", the mean pixel of a channel's softmax over pixels (Levine et al. 2016),
            which says where something is rather than how much of it there is.
        frozen: Whether its weights and statistics stay as they are given, as in the paper's
            Meta-World experiments; see `resnet.load_features`.
    """

    width: Width = 64
    stages: Annotated[Count, pydantic.Field(le=4)] = 4
    pooling: Literal["mean", "position"] = "mean"
    frozen: bool = False

    def create(self) -> "ResNetEncoder":
        """Returns a new encoder of images."""
        from fleet_tools.baselines.policies.resnet import ResNetEncoder

        return ResNetEncoder(self)


BodyConfig = Annotated[
    MLPConfig | RecurrentConfig | TransformerConfig, pydantic.Field(discriminator="type")
]
EncoderConfig = PointNetConfig | ResNet18Config


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
    layers: Depth = 2
    width: Width = 256
    unit: Positive = 0.25
    steps: Evaluations = 10

    def create(self, units: int, numbers: int) -> "DenoisingHead":
        """Returns a new head; see `LinearHeadConfig.create`."""
        from fleet_tools.baselines.policies.heads import DenoisingHead

        return DenoisingHead(self, units, numbers)

    def process(self) -> "Flow":
        """Returns the process between noise and actions."""
        from fleet_tools.baselines.policies.heads import Flow

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
    layers: Depth = 2
    width: Width = 256
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
        from fleet_tools.baselines.policies.heads import Diffusion

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
