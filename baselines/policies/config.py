"""How a policy is built: an encoder for each kind of input that needs one, and a body.

A configuration is a frozen value that says everything which the shapes of observations do not, and
whose parts create their modules.
"""

from typing import TYPE_CHECKING, Annotated, Literal

import pydantic

from fleet_tools.config.values import Count, Positive, Value
from fleet_tools.errors import UnknownNameError

if TYPE_CHECKING:
    from torch import nn


class MLP(Value):
    """Layers of ReLU units; it acts on what it sees now.

    Attributes:
        layers: Hidden ones; the paper's four are the default, here as in the bodies below.
        width: Units of each.
    """

    type: Literal["mlp"] = "mlp"
    layers: Count = 4
    width: Count = 512

    def create(self, inputs: int) -> "nn.Module":
        """Returns a new module that reads so many features; see `mlp`."""
        from fleet_tools.baselines.policies.mlp import MLPBody

        return MLPBody(self, inputs)


class Recurrent(Value):
    """Stacked recurrent layers, whose state lasts for an episode.

    Attributes:
        type: "elman" has tanh units (the paper's eq. rnn).
        layers: Each reads the one below.
        width: Units of each.
    """

    type: Literal["elman", "lstm", "gru"] = "elman"
    layers: Count = 4
    width: Count = 512

    def create(self, inputs: int) -> "nn.Module":
        """Returns a new module that reads so many features; see `mlp`."""
        from fleet_tools.baselines.policies.recurrent import RecurrentBody

        return RecurrentBody(self, inputs)


class Transformer(Value):
    """Causal self-attention over the steps of an episode.

    Attributes:
        layers: Each attends to the one below.
        width: Of the residual stream.
        heads: Of each layer; they share the width evenly.
        feedforward: Units of each layer's feedforward part.
        context: How many steps a layer looks back upon, the present one included.
    """

    type: Literal["transformer"] = "transformer"
    layers: Count = 4
    width: Count = 512
    heads: Count = 8
    feedforward: Count = 2048
    context: Count = 32

    @pydantic.model_validator(mode="after")
    def _heads_share_the_width(self) -> "Transformer":
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads cannot share a width of {self.width} evenly")
        return self

    def create(self, inputs: int) -> "nn.Module":
        """Returns a new module that reads so many features; see `mlp`."""
        from fleet_tools.baselines.policies.transformer import TransformerBody

        return TransformerBody(self, inputs)


class PointNet(Value):
    """One MLP for every point of a cloud, and the maximum over points (Qi et al. 2017).

    Attributes:
        widths: Units of its layers.
        unit_m: The length, in metres, that counts as 1: about the size of a tool, so that
            coordinates are neither lost beside the mask nor drown it.
    """

    widths: Annotated[tuple[Count, ...], pydantic.Field(min_length=1)] = (64, 128, 256)
    unit_m: Positive = 0.1

    def create(self) -> "nn.Module":
        """Returns a new module; see `pointnet`."""
        from fleet_tools.baselines.policies.pointnet import PointNetEncoder

        return PointNetEncoder(self)


class ResNet18(Value):
    """The residual network of 18 layers (He et al. 2016), without its classifier.

    Attributes:
        width: Channels of the first of four stages; each stage has twice as many as the last.
        frozen: Whether its weights and statistics stay as they are given, as in the paper's
            Meta-World experiments; see `resnet.load_features`.
    """

    width: Count = 64
    frozen: bool = False

    def create(self) -> "nn.Module":
        """Returns a new module; see `resnet`."""
        from fleet_tools.baselines.policies.resnet import ResNetEncoder

        return ResNetEncoder(self)


Body = Annotated[MLP | Recurrent | Transformer, pydantic.Field(discriminator="type")]


class PolicyConfig(Value):
    """A policy, but for what it observes.

    Attributes:
        body: Turns features into what the head reads, step by step.
        clouds: Encodes point clouds; None for a policy that reads none.
        pictures: Encodes colour pictures, each camera's with the same weights; None likewise.
        reads: Names of the observation's entries that it reads; none names them all.
    """

    body: Body = MLP()
    clouds: PointNet | None = None
    pictures: ResNet18 | None = None
    reads: tuple[str, ...] = ()


_BODIES = {
    "mlp": MLP(),
    **{cell: Recurrent(type=cell) for cell in ("elman", "lstm", "gru")},
    "transformer": Transformer(),
}

POLICIES: dict[str, PolicyConfig] = {
    prefix + name: PolicyConfig(body=body, **encoders)
    for prefix, encoders in {
        "": {},
        "pointnet_": {"clouds": PointNet()},
        "resnet_": {"pictures": ResNet18()},
    }.items()
    for name, body in _BODIES.items()
}
"""By the names under which programs know them; each body on state, on clouds and on pictures."""


def policy_config(name: str) -> PolicyConfig:
    """Returns one of the `POLICIES`; another size is spelled out, PolicyConfig(body=MLP(width=64)).

    Raises:
        UnknownNameError: There is no such policy.
    """
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    return POLICIES[name]
