"""All that a training follows from, as a value: what stands in `config.json` beside its result."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig, policy_config
from fleet_tools.baselines.policies.scaling import Scaling
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.config.values import Count, Value, differences, parse
from fleet_tools.dataset.header import installed_packages
from fleet_tools.dataset.normalization import normalization_of
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, DatasetError

VERSION = 1
"""Of what `config.json` says and means."""


class Experiment(Value):
    """The content of `config.json`.

    Attributes:
        version: `VERSION`.
        data: Folders of demonstrations, as they were given.
        episodes: How many these are.
        content_digest: Of which episodes these are.
        blueprint: Of the policy.
        training: How it is trained.
        validation_share: Of the episodes, which are not learned from.
        rollouts: How many scenes of each task a policy is tried in.
        rollout_every: After how many epochs.
        device: What computes.
        threads: Of the processor; another number rounds sums in another way.
        packages: Versions on which the bits of a result depend.
    """

    version: Literal[1] = VERSION
    data: tuple[str, ...]
    episodes: Count
    content_digest: str
    blueprint: Blueprint
    training: TrainingConfig
    validation_share: Annotated[float, pydantic.Field(ge=0, lt=1)]
    rollouts: pydantic.NonNegativeInt
    rollout_every: Count
    device: Literal["cpu", "cuda"]
    threads: Count
    packages: dict[str, str]

    def differences(self, other: "Experiment") -> list[str]:
        """Says what another one has otherwise."""
        return differences(self._flat(), other._flat())

    def _flat(self) -> dict[str, object]:
        parts = self.model_dump(mode="json")
        training = {f"training.{name}": each for name, each in parts.pop("training").items()}
        policy = parts.pop("blueprint")["config"]  # the rest of it follows from the data
        return {**parts, **training, "policy": policy}


def read_policy(
    name: str, settings: Sequence[str], observations: Sequence[str] | None
) -> PolicyConfig:
    """Reads what a policy is.

    Args:
        name: One of `policies.config.POLICIES`, or the path of a JSON file.
        settings: Texts KEY=VALUE that differ from it, such as "body.width=256"; values as JSON.
        observations: Names of what it reads, if not as it says.

    Raises:
        UnknownNameError, ConfigError: There is no such policy, or it has no such key or value.
    """
    if name.endswith(".json"):
        try:
            config = parse(PolicyConfig, json.loads(Path(name).read_text("utf-8")), name)
        except (OSError, json.JSONDecodeError) as error:
            raise ConfigError(f"{name} is no policy as JSON: {error}") from None
    else:
        config = policy_config(name)
    data = config.model_dump(mode="json")
    for text in settings:
        key, equals, value = text.partition("=")
        *parents, last = key.split(".")
        part: Any = data
        for parent in parents:
            part = part.get(parent) if isinstance(part, dict) else None
        if not equals or not isinstance(part, dict):
            raise ConfigError(
                f"{text!r} is no KEY=VALUE of the policy {name}, such as body.width=256. "
                f"It is {config.to_json()}."
            )
        try:
            part[last] = json.loads(value)
        except json.JSONDecodeError:
            part[last] = value
    if observations is not None:
        data["reads"] = list(observations)
    return parse(PolicyConfig, data, " ".join(["The policy", name, *settings]))


def content_digest(samples: Samples) -> str:
    """Returns a hash of which episodes some samples are of, by their last states."""
    listed = [[each.task, each.record.seed, each.record.state_digest] for each in samples.episodes]
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=8).hexdigest()


def packages() -> dict[str, str]:
    """Returns the versions on which the bits of a training depend."""
    return installed_packages(("numpy", "torch"))


def split(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples | None]:
    """Parts episodes into those to learn from and those to validate by.

    Args:
        samples: Of all of them.
        share: Of those to validate by; 0 for none.
        seed: Draws them.

    Raises:
        ConfigError: There are too few for both.
    """
    if share == 0:
        return samples, None
    episodes = len(samples.episodes)
    count = max(1, round(share * episodes))
    if count >= episodes:
        raise ConfigError(
            f"Of {episodes} episode{'s' * (episodes != 1)}, none is left to learn from when "
            f"{share:g} of them are for validation. Collect more, or take a share of 0."
        )
    order = np.random.default_rng(seed).permutation(episodes)
    return samples.subset(sorted(order[count:])), samples.subset(sorted(order[:count]))


def blueprint_of(policy: PolicyConfig, samples: Samples) -> Blueprint:
    """Returns the blueprint of a policy that learns from some samples, and is scaled by them.

    Raises:
        LayoutError, UnknownNameError: The policy cannot read them.
        DatasetError: They were observed in several ways, hold numbers that are not finite, or a
            file cannot be read.
    """
    if samples.environment is None:
        raise DatasetError(
            "The data sets were observed in several ways (obs_mode, camera_size, ...), so that no "
            "environment shows what the policy would learn from. Train on one kind of them."
        )
    Blueprint.of(policy, samples.observation, samples.action)  # before all data are read
    scaling = Scaling.of(normalization_of(samples).observation)
    return Blueprint.of(policy, samples.observation, samples.action, scaling, samples.environment)


def require_alike(blueprint: Blueprint, other: Blueprint) -> Blueprint:
    """Returns the other blueprint, which scales by other samples, if it is of the same policy.

    Policies of one blueprint can be merged: what numbers are scaled by is a part of what they mean.

    Raises:
        ConfigError: It is of another policy; the message says in what.
    """
    flat = [each.model_dump(mode="json", exclude={"scaling"}) for each in (blueprint, other)]
    if unlike := differences(*flat):
        raise ConfigError(
            f"With this data, a policy is not as that of the checkpoint is: {'; '.join(unlike)}. "
            "Give data of the same layout, or --policy instead of --like."
        )
    return other
