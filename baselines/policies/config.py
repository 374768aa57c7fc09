"""Configurations of policies: a body, and an encoder for each kind of entry that needs one.

A configuration is a frozen value with everything that does not follow from the shapes of
observations; its parts create their modules.
"""

from typing import TYPE_CHECKING, Annotated, Literal, Self

import pydantic

from fleet_tools.baselines.policies.head_config import (
    EnsembleConfig,
    ExecutionConfig,
    HeadConfig,
    HorizonConfig,
    LinearHeadConfig,
)
from fleet_tools.config.values import (
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    Value,
)
from fleet_tools.errors import UnknownNameError

if TYPE_CHECKING:
    from fleet_tools.baselines.policies.mlp import MLPBody
    from fleet_tools.baselines.policies.pointnet import PointNetEncoder
    from fleet_tools.baselines.policies.recurrent import RecurrentBody
    from fleet_tools.baselines.policies.resnet import ResNetEncoder
    from fleet_tools.baselines.policies.transformer import TransformerBody

EncodedKind = Literal["cloud", "image"]
"""Kind of an observation's entry that an encoder reads."""

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
        from fleet_tools.baselines.policies.mlp import MLPBody

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
        from fleet_tools.baselines.policies.recurrent import RecurrentBody

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
        from fleet_tools.baselines.policies.pointnet import PointNetEncoder

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


class GateConfig(Value):
    """Several networks in one policy, see `gated.GatedNetwork`; merging makes such policies.

    Attributes:
        members: Number of networks.
        sharpness: Power of the densities. The entries of a state are far from independent, so that
            a density of many of them is too sure. With 0, members have equal weights, and there
            are no densities.
    """

    members: Annotated[Count, pydantic.Field(le=1000)]
    sharpness: NonNegative = 0.1


class PolicyConfig(Value):
    """A policy without the layout of what it observes.

    Attributes:
        body: Turns features into the units that the head reads, step by step.
        clouds: Encoder of point clouds; None for a policy that reads none.
        images: Encoder of colour images, the same for all cameras; None for a policy that reads
            none.
        reads: Names of the observation's entries that the policy reads; empty for all.
        head: Turns units into actions.
        chunk: Number of actions that the head gives in each step: that of the step and those of
            the steps that follow.
        execution: What is executed of these chunks.
        gate: Several networks of this kind, weighted by the density of what they know; None for
            one network. With densities, such a policy has no encoders.
    """

    body: BodyConfig = MLPConfig()
    clouds: PointNetConfig | None = None
    images: ResNet18Config | None = None
    reads: tuple[str, ...] = ()
    head: HeadConfig = LinearHeadConfig()
    chunk: Annotated[Count, pydantic.Field(le=1000)] = 1
    execution: ExecutionConfig = EnsembleConfig()
    gate: GateConfig | None = None

    @pydantic.model_validator(mode="after")
    def _gate_reads_state(self) -> Self:
        if self.gate is not None and self.gate.sharpness > 0 and self.encoders:
            raise ValueError("a gate weighs policies that read states alone, without encoders")
        return self

    @pydantic.model_validator(mode="after")
    def _require_predicted(self) -> Self:
        if isinstance(self.execution, HorizonConfig) and self.execution.steps > self.chunk:
            raise ValueError(
                f"{self.execution.steps} execution.steps are more than the {self.chunk} actions of "
                "a chunk; give a larger `chunk`"
            )
        return self

    @property
    def conditioned_on_task(self) -> bool:
        """Whether the body is told the task in another way than by features."""
        body = self.body
        return not isinstance(body, RecurrentConfig) and body.task_conditioning != "input"

    @property
    def encoders(self) -> dict[EncodedKind, EncoderConfig]:
        """Configurations of its encoders, by the kind of entry that they read."""
        encoders: dict[EncodedKind, EncoderConfig] = {}
        if self.clouds is not None:
            encoders["cloud"] = self.clouds
        if self.images is not None:
            encoders["image"] = self.images
        return encoders


_BODIES: dict[str, BodyConfig] = {
    "mlp": MLPConfig(),
    "elman": RecurrentConfig(type="elman"),
    "lstm": RecurrentConfig(type="lstm"),
    "gru": RecurrentConfig(type="gru"),
    "transformer": TransformerConfig(),
}

ARCHITECTURES: dict[str, PolicyConfig] = {
    **{name: PolicyConfig(body=body) for name, body in _BODIES.items()},
    **{
        f"pointnet_{name}": PolicyConfig(body=body, clouds=PointNetConfig())
        for name, body in _BODIES.items()
    },
    **{
        f"resnet_{name}": PolicyConfig(body=body, images=ResNet18Config())
        for name, body in _BODIES.items()
    },
}
"""Configurations by the names that programs take: each body on state, on clouds and on images."""


def policy_config(name: str) -> PolicyConfig:
    """Returns one of the `ARCHITECTURES`.

    Other sizes are made directly, as in PolicyConfig(body=MLPConfig(width=64)).

    Raises:
        UnknownNameError: There is no such architecture.
    """
    if name not in ARCHITECTURES:
        raise UnknownNameError("architecture", name, ARCHITECTURES)
    return ARCHITECTURES[name]
