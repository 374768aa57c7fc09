"""Configurations of the parts of a policy: bodies, encoders, heads, and execution of chunks.

Each is a frozen value that creates its module, and can be imported without PyTorch.
"""

import importlib
import re
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic

from fleet_tools.config.values import (
    STORED_IF_SET,
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    Value,
)
from fleet_tools.errors import ConfigError
from fleet_tools.utils.imports import load_user_object, require_trusted

Depth = Annotated[Count, pydantic.Field(le=1000)]
"""A number of layers, which are made one by one."""

Width = Annotated[Count, pydantic.Field(le=100_000)]
"""A number of units."""


class ModuleConfig(Value):
    """Base class of the configurations of torch modules.

    Attributes:
        module: Place of its class, as "module:class" of this package.
    """

    module: ClassVar[str]

    def create(self, *sizes: int) -> Any:
        """Returns a new module.

        Args:
            sizes: Of a body, the number of features, and with conditioning on the task, the number
                of further ones that identify it. Of a head, the numbers of units and of entries of
                a chunk of actions. None of an encoder.
        """
        module, _, name = self.module.partition(":")
        imported = importlib.import_module(f"fleet_tools.baselines.policies.{module}")
        return getattr(imported, name)(self, *sizes)


class MLPConfig(ModuleConfig):
    """Layers of ReLU units, without memory.

    Attributes:
        layers: Number of hidden layers; the default of all bodies is the paper's, 4. With 0, the
            policy is linear in its inputs.
        width: Number of units of each layer.
        task_conditioning: "input": only the features identify the task. "film": the task also
            scales and shifts the units of every layer (FiLM, Perez et al. 2018).
    """

    module: ClassVar[str] = "bodies:MLPBody"
    type: Literal["mlp"] = "mlp"
    layers: Annotated[CountOrZero, pydantic.Field(le=1000)] = 4
    width: Width = 512
    task_conditioning: Literal["input", "film"] = "input"


class RecurrentConfig(ModuleConfig):
    """Stacked recurrent layers, with a state that lasts for an episode.

    Attributes:
        type: Kind of the layers; "elman" has tanh units (the paper's eq. rnn).
        layers: Number of layers; each reads the one below.
        width: Number of units of each layer.
    """

    module: ClassVar[str] = "bodies:RecurrentBody"
    type: Literal["elman", "lstm", "gru"] = "elman"
    layers: Depth = 4
    width: Width = 512


class TransformerConfig(ModuleConfig):
    """Causal self-attention over the steps of an episode.

    Attributes:
        layers: Number of layers; each attends to the one below.
        width: Width of the residual stream.
        heads: Number of heads of each layer, which divides the width.
        feedforward: Number of units of each layer's feedforward part.
        context: Number of steps that a layer attends to, including the present one.
        task_conditioning: "input": only the features identify the task. "token": the task is also
            the first token of the sequence, to which all steps attend.
    """

    module: ClassVar[str] = "bodies:TransformerBody"
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
            raise ValueError(f"the width {self.width} is not a multiple of the {self.heads} heads")
        return self


class PointNetConfig(ModuleConfig):
    """One MLP for every point of a cloud, and the maximum over points (Qi et al. 2017).

    Attributes:
        widths: Number of units of each layer.
        unit_m: Length that counts as 1, m: about the size of a tool, so that coordinates and the
            mask have similar magnitudes.
        part_unit_m: Likewise for coordinates relative to the mean of their part, as additional
            inputs; 0 for none.
    """

    module: ClassVar[str] = "encoders:PointNetEncoder"
    widths: Annotated[tuple[Width, ...], pydantic.Field(min_length=1)] = (64, 128, 256)
    unit_m: Positive = 0.1
    part_unit_m: Annotated[NonNegative, STORED_IF_SET] = 0.0


class ResNet18Config(ModuleConfig):
    """The residual network of 18 layers (He et al. 2016), without its classifier.

    Attributes:
        width: Number of channels of the first stage; each further one doubles it, and halves
            width and height.
        stages: Number of stages; fewer than the original's four leave more pixels for `pooling`.
        pooling: Features of channels: "mean" over pixels, as in the original. "position": the mean
            pixel of a channel's softmax over pixels (Levine et al. 2016). The latter gives the
            place of an object rather than its amount.
        frozen: Whether its weights and statistics stay constant, as in the paper's Meta-World
            experiments; see `resnet.load_features`.
    """

    module: ClassVar[str] = "resnet:ResNetEncoder"
    width: Width = 64
    stages: Annotated[Count, pydantic.Field(le=4)] = 4
    pooling: Literal["mean", "position"] = "mean"
    frozen: bool = False


def _class_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError(f"{text!r} is not a class; expected module:Class, such as my_nets:Body")
    return text


class OwnClassConfig(Value):
    """A body or an encoder of a class of your own, a torch module.

    A body is made as `Class(inputs, **arguments)`, from its number of features, and called as
    `body(features, hidden)`, see `bodies.Body.forward`. An encoder is made as `Class(**arguments)`,
    and called as in `encoders.Encoder.forward`. Both have an attribute `width`, their number of
    outputs. Tables of axes for merging are derived from their computation.

    The class is imported only if its module is trusted, see `fleet_tools.utils.imports`. The
    command line or `FLEET_TOOLS_TRUSTED_MODULES` must name it; a checkpoint trusts nothing.

    Attributes:
        name: The class, as "module:Class".
        arguments: Keyword arguments of its constructor, as plain data.
        memory: Of a body, whether its units depend on earlier steps, so that it learns from whole
            episodes.
    """

    type: Literal["class"] = "class"
    name: Annotated[str, pydantic.AfterValidator(_class_name)]
    arguments: dict[str, pydantic.JsonValue] = {}
    memory: bool = True

    def create(self, *inputs: int) -> Any:
        """Returns a new body or encoder; code of the class is run.

        Args:
            inputs: Of a body, the number of features that it reads.

        Raises:
            ConfigError: The class is not trusted, does not exist, raises an error, or is no torch
                module with a width.
        """
        from torch import nn

        require_trusted([self.name], "The policy", ConfigError)
        own = load_user_object(self.name, "class", ConfigError)
        if not isinstance(own, type) or not issubclass(own, nn.Module):  # nothing else is called
            raise ConfigError(f"{self.name} is not a class of torch modules; it is {own!r}.")
        given = ", ".join([*map(str, inputs), *(f"{k}={v!r}" for k, v in self.arguments.items())])
        try:
            made = own(*inputs, **self.arguments)
        except Exception as error:  # a user's class may fail in any way
            what = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.name}({given}) cannot be created ({what}).") from error
        width = getattr(made, "width", None)
        if not isinstance(width, int) or width < 1:
            raise ConfigError(
                f"{self.name}({given}) has the width {width!r}. The attribute `width` of a body or "
                "encoder must be the number of its outputs."
            )
        return made


def _encoder_kind(config: object) -> str:
    kind = config.get("type") if isinstance(config, dict) else getattr(config, "type", None)
    return "class" if kind == "class" else "ours"


BodyConfig = Annotated[
    MLPConfig | RecurrentConfig | TransformerConfig | OwnClassConfig,
    pydantic.Field(discriminator="type"),
]
_OwnEncoder = Annotated[OwnClassConfig, pydantic.Tag("class")]
CloudsConfig = Annotated[
    Annotated[PointNetConfig, pydantic.Tag("ours")] | _OwnEncoder,
    pydantic.Discriminator(_encoder_kind),
]
ImagesConfig = Annotated[
    Annotated[ResNet18Config, pydantic.Tag("ours")] | _OwnEncoder,
    pydantic.Discriminator(_encoder_kind),
]
EncoderConfig = PointNetConfig | ResNet18Config | OwnClassConfig


Evaluations = Annotated[Count, pydantic.Field(le=10_000)]


class LinearHeadConfig(ModuleConfig):
    """A linear layer.

    Attributes:
        loss: "squared": it learns the mean of demonstrated actions. "absolute": the median, with
            gradients that do not vanish for small errors, as in ACT (Zhao et al. 2023). Merges that
            fit a last layer fit the mean in both cases.
    """

    module: ClassVar[str] = "heads:LinearHead"
    type: Literal["linear"] = "linear"
    loss: Literal["squared", "absolute"] = "squared"


class FlowHeadConfig(ModuleConfig):
    """Flow matching (Lipman et al. 2023; on straight paths as in Liu et al. 2023).

    Attributes:
        layers: Number of hidden layers of the network that gives the velocity.
        width: Number of units of each of them.
        unit: Number of an action that counts as 1 on the scale of the noise, with deviation 1. The
            deviation of demonstrated actions is about 0.2.
        steps: Number of Euler steps from noise to actions.
    """

    module: ClassVar[str] = "heads:DenoisingHead"
    type: Literal["flow"] = "flow"
    layers: Depth = 2
    width: Width = 128
    unit: Positive = 0.25
    steps: Evaluations = 10


class DiffusionHeadConfig(ModuleConfig):
    """Denoising diffusion (Ho et al. 2020; for policies Chi et al. 2023), sampled by DDIM.

    Attributes:
        layers: Number of hidden layers of the network that predicts the noise.
        width: Number of units of each of them.
        unit: Number of an action that counts as 1; see `FlowHeadConfig`.
        levels: Number of noise levels in training.
        steps: Number of levels that sampling visits (Song et al. 2021), at most `levels`.
    """

    module: ClassVar[str] = "heads:DenoisingHead"
    type: Literal["diffusion"] = "diffusion"
    layers: Depth = 2
    width: Width = 128
    unit: Positive = 0.25
    levels: Evaluations = 100
    steps: Evaluations = 10

    @pydantic.model_validator(mode="after")
    def _steps_are_levels(self) -> "DiffusionHeadConfig":
        if self.steps > self.levels:
            raise ValueError(
                f"{self.steps} steps exceed the {self.levels} levels; give at most {self.levels}"
            )
        return self


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
    """The first actions of a chunk one after another, then of a new chunk.

    Attributes:
        steps: Number of executed actions of a chunk.
    """

    type: Literal["horizon"] = "horizon"
    steps: Count = 1


ExecutionConfig = Annotated[EnsembleConfig | HorizonConfig, pydantic.Field(discriminator="type")]
