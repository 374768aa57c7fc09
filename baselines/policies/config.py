"""Configurations of policies: a body, and an encoder for each kind of entry that needs one.

A configuration is a frozen value with everything that does not follow from the shapes of
observations; its parts create their modules.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import pydantic

from fleet_tools.config.values import Count, Positive, Value, parse
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.storage.strict_json import load

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
        layers: Number of hidden layers; the default of all bodies is the paper's, 4.
        width: Number of units of each layer.
    """

    type: Literal["mlp"] = "mlp"
    layers: Depth = 4
    width: Width = 512

    def create(self, inputs: int) -> "MLPBody":
        """Returns a new body.

        Args:
            inputs: Number of features that it reads.
        """
        from fleet_tools.baselines.policies.mlp import MLPBody

        return MLPBody(self, inputs)


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
    """

    type: Literal["transformer"] = "transformer"
    layers: Depth = 4
    width: Width = 512
    heads: Width = 8
    feedforward: Width = 2048
    context: Width = 32

    @pydantic.model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.width}")
        return self

    def create(self, inputs: int) -> "TransformerBody":
        """Returns a new body.

        Args:
            inputs: Number of features that it reads.
        """
        from fleet_tools.baselines.policies.transformer import TransformerBody

        return TransformerBody(self, inputs)


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


class PolicyConfig(Value):
    """A policy without the layout of what it observes.

    Attributes:
        body: Turns features into the units that the head reads, step by step.
        clouds: Encoder of point clouds; None for a policy that reads none.
        images: Encoder of colour images, the same for all cameras; None for a policy that reads
            none. Files and YAML call it "pictures".
        reads: Names of the observation's entries that the policy reads; empty for all.
    """

    body: BodyConfig = MLPConfig()
    clouds: PointNetConfig | None = None
    images: ResNet18Config | None = pydantic.Field(
        default=None, validation_alias="pictures", serialization_alias="pictures"
    )
    reads: tuple[str, ...] = ()

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


def read_policy_config(
    source: str,
    settings: Sequence[tuple[str, Any]] = (),
    observations: Sequence[str] | None = None,
) -> PolicyConfig:
    """Reads the configuration of a policy, as command lines give it.

    Args:
        source: Name of one of the `ARCHITECTURES`, or path of a JSON file.
        settings: Values that differ from it, by keys such as "body.width".
        observations: Names of the entries that the policy reads; as in the source if None.

    Raises:
        UnknownNameError, ConfigError: There is no such architecture, or it has no such key or
            value.
    """
    config = _load_json(source) if source.endswith(".json") else policy_config(source)
    data = config.model_dump(mode="json")
    for key, value in settings:
        *parents, last = _present_key(key).split(".")
        part: Any = data
        for parent in parents:
            part = part.get(parent) if isinstance(part, dict) else None
        if not isinstance(part, dict):
            raise ConfigError(
                f"The architecture {source} has no key {key!r}, such as body.width. It is "
                f"{config.to_json()}."
            )
        part[last] = value
    if observations is not None:
        data["reads"] = list(observations)
    described = [f"{key}={value}" for key, value in settings]
    return parse(PolicyConfig, data, " ".join(["The architecture", source, *described]))


def _load_json(path: str) -> PolicyConfig:
    try:
        return parse(PolicyConfig, load(Path(path)), path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not the JSON of a policy: {error}") from None


def _present_key(key: str) -> str:
    first, dot, rest = key.partition(".")
    return f"images{dot}{rest}" if first == "pictures" else key  # its name in files
