"""Configurations of policies as command lines give them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet_tools.baselines.policies.config import (
    MLPConfig,
    PolicyConfig,
    RecurrentConfig,
    TransformerConfig,
    policy_config,
)
from fleet_tools.baselines.policies.head_config import (
    DiffusionHeadConfig,
    EnsembleConfig,
    FlowHeadConfig,
    HorizonConfig,
    LinearHeadConfig,
)
from fleet_tools.config.values import Value, parse
from fleet_tools.errors import ConfigError
from fleet_tools.storage.strict_json import load

_TYPES: dict[str, type[Value]] = {
    "mlp": MLPConfig,
    **dict.fromkeys(("elman", "lstm", "gru"), RecurrentConfig),
    "transformer": TransformerConfig,
    "linear": LinearHeadConfig,
    "flow": FlowHeadConfig,
    "diffusion": DiffusionHeadConfig,
    "ensemble": EnsembleConfig,
    "horizon": HorizonConfig,
}
"""Classes by the key `type`."""


def read_policy_config(
    source: str,
    settings: Sequence[tuple[str, Any]] = (),
    observations: Sequence[str] | None = None,
) -> PolicyConfig:
    """Reads the configuration of a policy, as command lines give it.

    Args:
        source: Name of one of the `ARCHITECTURES`, or path of a JSON file.
        settings: Values that differ from it, by keys such as "body.width". Another `type`, such as
            that of "head.type", keeps the former values that it has, too.
        observations: Names of the entries that the policy reads; as in the source if None.

    Raises:
        UnknownNameError, ConfigError: There is no such architecture, or it has no such key or
            value.
    """
    config = _load_json(source) if source.endswith(".json") else policy_config(source)
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
    return parse(PolicyConfig, data, " ".join(["The architecture", source, *described]))


def _load_json(path: str) -> PolicyConfig:
    try:
        return parse(PolicyConfig, load(Path(path)), path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not the JSON of a policy: {error}") from None
