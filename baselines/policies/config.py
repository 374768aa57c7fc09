"""The configuration of a policy: all settings that its observations do not determine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import pydantic

from fleet_tools.baselines.policies.part_configs import (
    BodyConfig,
    CloudsConfig,
    DiffusionHeadConfig,
    EncoderConfig,
    EnsembleConfig,
    ExecutionConfig,
    FlowHeadConfig,
    HeadConfig,
    HorizonConfig,
    ImagesConfig,
    LinearHeadConfig,
    MLPConfig,
    OwnClassConfig,
    PointNetConfig,
    RecurrentConfig,
    ResNet18Config,
    TransformerConfig,
)
from fleet_tools.config.values import (
    STORED_IF_SET,
    Count,
    CountOrZero,
    NonNegative,
    Value,
    load_yaml,
    parse,
)
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.storage.strict_json import load
from fleet_tools.utils.imports import trust

EncodedKind = Literal["cloud", "image"]
"""Kind of an observation's entry that an encoder reads."""


class GateConfig(Value):
    """A density-gated ensemble, see `network.GatedNetwork`; merging makes such policies.

    Attributes:
        members: Number of networks.
        sharpness: Power of the densities. The entries of a state are not independent, so a density
            of many of them is overconfident. With 0, members have equal weights, without densities.
        reader: Number of the network that gives the densities their features, from 0.
    """

    members: Annotated[Count, pydantic.Field(le=1000)]
    sharpness: NonNegative = 0.1
    reader: Annotated[CountOrZero, STORED_IF_SET] = 0

    @pydantic.model_validator(mode="after")
    def _reader_is_member(self) -> Self:
        if self.reader >= self.members:
            raise ValueError(
                f"{self.members} members have the numbers 0 to {self.members - 1}; given: `reader: "
                f"{self.reader}`"
            )
        return self


class PolicyConfig(Value):
    """A policy without the layout of its observations.

    Attributes:
        body: Turns features into the units that the head reads, step by step.
        clouds: Encoder of point clouds; None for a policy that reads none.
        images: Encoder of colour images, the same for all cameras; None for a policy that reads
            none.
        reads: Names of the observation's entries that the policy reads; empty for all.
        task_hidden: Whether the policy must infer its task from sight. It does not read the task's
            one-hot. Of padded keypoints, it reads neither the masks nor the rows that some task of
            the demonstrations lacks, see `layout.numbers_read`. Scenes may still show the task, by
            the form of a tool or the place of a goal.
        first_frame: Names of the entries that the policy reads in the first step of an episode
            only, and keeps from then on.
        optional: Names of the entries that a robot may lack. A constant then replaces them, see
            `Blueprint.absent`. Training hides each in half of the episodes, or of the steps of a
            policy without memory. Every robot has at least one entry that shows the object.
        head: Turns units into actions.
        chunk: Number of actions that the head gives in each step: of the step and of the next ones.
        execution: Execution of these chunks.
        gate: Several networks of this kind as a density-gated ensemble; None for one network.
    """

    body: BodyConfig = MLPConfig()
    clouds: CloudsConfig | None = None
    images: ImagesConfig | None = None
    reads: tuple[str, ...] = ()
    task_hidden: Annotated[bool, STORED_IF_SET] = False
    first_frame: Annotated[tuple[str, ...], STORED_IF_SET] = ()
    optional: Annotated[tuple[str, ...], STORED_IF_SET] = ()
    head: HeadConfig = LinearHeadConfig()
    chunk: Annotated[Count, pydantic.Field(le=1000)] = 1
    execution: ExecutionConfig = EnsembleConfig()
    gate: GateConfig | None = None

    @pydantic.model_validator(mode="after")
    def _require_predicted(self) -> Self:
        if isinstance(self.execution, HorizonConfig) and self.execution.steps > self.chunk:
            raise ValueError(
                f"{self.execution.steps} execution.steps exceed the {self.chunk} actions of a "
                "chunk; give a larger `chunk`"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _hidden_or_told(self) -> Self:
        if self.task_hidden and self.conditioned_on_task:
            raise ValueError(
                "the policy's body is conditioned on a hidden task; leave out `task_hidden` or the "
                "body's `task_conditioning`"
            )
        return self

    @property
    def conditioned_on_task(self) -> bool:
        """Whether the body reads the task apart from features."""
        body = self.body
        return isinstance(body, MLPConfig | TransformerConfig) and body.task_conditioning != "input"

    @property
    def with_memory(self) -> bool:
        """Whether the policy learns from whole episodes instead of steps."""
        if isinstance(self.body, OwnClassConfig):
            return self.body.memory
        return not isinstance(self.body, MLPConfig)

    def with_width(self, width: int) -> Self | None:
        """Returns the policy with another number of units in each layer of its body.

        Layers of a head that denoises are scaled by the same factor.

        Returns:
            None if the body is neither an MLP with layers nor recurrent, the policy is an ensemble,
            or the width is out of range.
        """
        resizable = isinstance(self.body, MLPConfig | RecurrentConfig) and self.body.layers > 0
        if not resizable or self.gate is not None:
            return None
        try:
            return self.of_width(width)
        except pydantic.ValidationError:
            return None

    def of_width(self, width: int) -> Self:
        """Returns the policy with another width of its body, see `with_width`.

        Raises:
            pydantic.ValidationError: No body of this type, or no head, has this width.
        """
        own: Any = self.body
        body = type(own).model_validate({**own.model_dump(), "width": width})
        head = self.head
        if not isinstance(head, LinearHeadConfig):
            units = max(1, round(head.width * width / own.width))
            head = type(head).model_validate({**head.model_dump(), "width": units})
        return self.model_copy(update={"body": body, "head": head})

    @property
    def own_classes(self) -> list[OwnClassConfig]:
        """Its parts of a user's classes."""
        parts = (self.body, self.clouds, self.images)
        return [part for part in parts if isinstance(part, OwnClassConfig)]

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

    Make other sizes directly, as in PolicyConfig(body=MLPConfig(width=64)).

    Raises:
        UnknownNameError: There is no such architecture.
    """
    if name not in ARCHITECTURES:
        raise UnknownNameError("architecture", name, ARCHITECTURES)
    return ARCHITECTURES[name]


_TYPES: dict[str, type[Value]] = {
    name: config
    for config in (
        *(MLPConfig, RecurrentConfig, TransformerConfig, OwnClassConfig),
        *(LinearHeadConfig, FlowHeadConfig, DiffusionHeadConfig),
        *(EnsembleConfig, HorizonConfig),
    )
    for name in get_args(config.model_fields["type"].annotation)
}
"""Classes by the key `type`."""


def read_policy_config(
    source: str,
    settings: Sequence[tuple[str, Any]] = (),
    observations: Sequence[str] | None = None,
) -> PolicyConfig:
    """Reads the configuration of a policy from command-line options.

    Args:
        source: Name of one of the `ARCHITECTURES`, path of a JSON or YAML file, or "module:Class",
            a user's body. Classes that it names are trusted from now on.
        settings: Changed values, by keys such as "body.width". Another `type`, such as "head.type",
            keeps the former values that it has, too.
        observations: Names of the entries that the policy reads; None for the source's.

    Raises:
        UnknownNameError, ConfigError: There is no such architecture, or it has no such key or
            value.
    """
    config = _read(source)
    data = config.model_dump(mode="json")
    for key, value in settings:
        *parents, last = key.split(".")
        part: Any = data
        for parent in parents:
            part = part.get(parent) if isinstance(part, dict) else None
        if not isinstance(part, dict):
            raise ConfigError(
                f"The architecture {source} has no key {key!r}, such as body.width. It is "
                f"{config.to_json()}."
            )
        part[last] = value
        if last == "type" and value in _TYPES:
            for former in part.keys() - _TYPES[value].model_fields.keys():
                del part[former]
    if observations is not None:
        data["reads"] = list(observations)
    described = [f"{key}={value}" for key, value in settings]
    config = parse(PolicyConfig, data, " ".join(["The architecture", source, *described]))
    for part in config.own_classes:
        trust(part.name)
    return config


def _read(source: str) -> PolicyConfig:
    if source.endswith((".yaml", ".yml")):
        return load_yaml(PolicyConfig, Path(source))
    if not source.endswith(".json"):
        if ":" not in source:
            return policy_config(source)
        body = {"type": "class", "name": source}
        return parse(PolicyConfig, {"body": body}, f"The architecture {source}")
    try:
        return parse(PolicyConfig, load(Path(source)), source)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source} is not the JSON config of a policy: {error}") from None
