"""All of a policy but its weights, as a value: what it reads, what it is, and what it does."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import gymnasium
import numpy as np
import pydantic

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.errors import LayoutError, OtherPolicyError
from fleet_tools.baselines.policies.layout import (
    Kind,
    Layout,
    described,
    kind,
    read_by,
    require_offered,
)
from fleet_tools.baselines.policies.scaling import Scaling
from fleet_tools.config.values import Value, differences, parse
from fleet_tools.dataset.header import Array, describe_action, describe_observation
from fleet_tools.perception.observation_config import observing_keywords

if TYPE_CHECKING:
    from fleet_tools.baselines.merging.symmetry.table import Symmetry
    from fleet_tools.baselines.policies.network import PolicyNetwork

VERSION = 2
"""Of what a checkpoint says and means; one that another version wrote is refused."""


class Blueprint(Value):
    """What a policy's network is built from, and what that network is good for.

    Attributes:
        version: `VERSION`.
        config: How it is built.
        observation: The entries that it reads, by name.
        action: What it answers. Entries lie in [-1, 1], as everywhere in this package, and its
            `scale` says which motion 1 is.
        scaling: Of every entry that no encoder reads.
        environment: Keywords of the environment whose observations it has learned to read, such
            as {"obs_mode": "point_cloud", "cloud_size": [128, 128]}.
    """

    version: Literal[2] = VERSION
    config: PolicyConfig
    observation: dict[str, Array]
    action: Array
    scaling: Scaling
    environment: dict[str, pydantic.JsonValue]

    @pydantic.model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if list(read_by(self.config, self.observation)) != list(self.observation):
            raise ValueError("the config reads other entries than those of `observation`, sorted")
        sizes = {name: len(row) for name, row in self.scaling.mean.items()}
        expected = {
            name: int(np.prod(self.observation[name].shape)) for name in self.names("state")
        }
        if sizes != expected:
            raise ValueError(f"the scaling has the numbers {sizes}, not {expected}")
        if observing_keywords(self.environment) != self.environment:
            raise ValueError(f"{self.environment} is more, or less, than what is observed")
        if len(self.action.shape) != 1 or self.action.dtype != "float32":
            raise ValueError("an action is one row of float32")
        return self

    @classmethod
    def of(
        cls,
        config: PolicyConfig,
        observation: Layout,
        action: Array,
        scaling: Scaling | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Self:
        """Puts together what a policy of a configuration reads of observations.

        Args:
            config: The policy's.
            observation: What there is to read, such as a data set's header says.
            action: What demonstrations did, likewise.
            scaling: Of at least what is read; None leaves all numbers as they are.
            environment: Keywords of the environment that observes it; others than
                `vision.observing_keywords` are left out.

        Raises:
            LayoutError, UnknownNameError: Such a policy cannot read that; see `layout.read_by`.
            ConfigError: The scaling is of something else.
        """
        read = read_by(config, observation)
        scaling = scaling or Scaling.identity(read)
        mean, std = (
            {name: row for name, row in rows.items() if name in read}
            for rows in (scaling.mean, scaling.std)
        )
        parts = {
            "config": config,
            "observation": read,
            "action": action,
            "scaling": Scaling(mean=mean, std=std),
            "environment": observing_keywords(environment or {}),
        }
        return parse(cls, parts, "The blueprint")

    def names(self, what: Kind) -> list[str]:
        """Returns the entries of one kind, in the order in which they are read."""
        return [name for name, array in self.observation.items() if kind(name, array) == what]

    def create(self, seed: int = 0) -> "PolicyNetwork":
        """Returns a new network; the generator that all of torch shares is left as it was.

        Args:
            seed: Of its weights.
        """
        import torch

        from fleet_tools.baselines.policies.network import PolicyNetwork

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return PolicyNetwork(self)

    def symmetry(self) -> "Symmetry":
        """Returns the table of the network's axes; see `PolicyNetwork.symmetry`."""
        import torch

        from fleet_tools.baselines.policies.network import PolicyNetwork

        with torch.device("meta"):  # shapes without numbers
            return PolicyNetwork(self).symmetry()

    def differences(self, other: "Blueprint") -> list[str]:
        """Says what another one has otherwise: weights of one are not weights of the other."""
        scaled, otherwise = (
            {name: (each.scaling.mean[name], row) for name, row in each.scaling.std.items()}
            for each in (self, other)
        )
        return differences(self._flat(), other._flat()) + [
            f"the scaling of {name!r} is another"
            for name in scaled.keys() & otherwise.keys()
            if scaled[name] != otherwise[name]
        ]

    def _flat(self) -> dict[str, object]:
        config, action = self.config.model_dump(mode="json"), dict(self.action)
        return {
            **{f"the config's {name}": value for name, value in config.items()},
            **described(self.observation),
            **{f"the {name} of actions": value for name, value in action.items()},
            **{f"the environment's {name}": value for name, value in self.environment.items()},
        }

    def require_environment(self, env: gymnasium.Env) -> None:
        """Sees to it that a policy can act in an environment of this package.

        Raises:
            LayoutError: The environment lacks an entry that is read, or has it in another shape,
                dtype, unit, frame or order, or its actions mean something else.
        """
        require_offered(self.observation, describe_observation(env))
        action = describe_action(env)
        if action != self.action:
            wrong = "; ".join(
                f"the {what}" for what in differences(dict(action), dict(self.action))
            )
            raise LayoutError(
                f"The policy's actions are not those of the environment: {wrong}. Make "
                "the environment as it was in training, or train on this one."
            )


def common_blueprint(blueprints: Mapping[str, Blueprint]) -> Blueprint:
    """Returns the blueprint of policies whose weights are to be averaged: the same for all.

    Args:
        blueprints: At least one, by what messages are to call it.

    Raises:
        OtherPolicyError: They are not the same; the message names every difference.
    """
    (first, blueprint), *others = blueprints.items()
    for name, other in others:
        if wrong := blueprint.differences(other):
            raise OtherPolicyError(
                f"{first} and {name} are policies of two kinds: in the first, {'; '.join(wrong)}. "
                "Weights can be merged where they mean the same. Train all from one blueprint: one "
                "config, one layout of observations, and one scaling (`Scaling.of` what all their "
                "data have in common)."
            )
    return blueprint
