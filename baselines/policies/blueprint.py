"""Blueprints: values that describe a policy without its weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import gymnasium
import numpy as np
import pydantic

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import (
    Kind,
    LayoutError,
    Scaling,
    entries_of_sight,
    entries_read,
    kind_of,
    require_offered,
)
from fleet_tools.baselines.policies.reading import CLOUD, NAMES, Reading
from fleet_tools.config.values import STORED_IF_SET, Value, by_dotted_keys, differences, parse
from fleet_tools.envs.array_spec import (
    ArraySpec,
    Layout,
    describe_action,
    describe_layout,
    describe_observation,
)
from fleet_tools.envs.observation_modes import EnvKwargs, observation_kwargs

if TYPE_CHECKING:
    import torch

    from fleet_merging.moments.affine_maps import AffineMap
    from fleet_merging.symmetry.table import Symmetry
    from fleet_tools.baselines.policies.keypoint_detector import DetectingNetwork
    from fleet_tools.baselines.policies.network import GatedNetwork, PolicyNetwork

    Network = PolicyNetwork | GatedNetwork | DetectingNetwork

VERSION = 1
"""Version of the content and meaning of a blueprint; others are refused."""

_DERIVED: dict[str, "Symmetry"] = {}
"""Tables of axes derived in this process, by blueprint; a derivation takes seconds."""


class Blueprint(Value):
    """The parts of a policy's network, and the environments in which it can act.

    Attributes:
        version: `VERSION`.
        config: Configuration of the policy.
        observation: Layout of the entries that it reads, by name.
        action: Layout of its actions, with entries in [-1, 1]. `scale` is the motion for an entry
            of 1, and `rate_hz` the control rate of the demonstrations.
        scaling: Scaling of every entry without an encoder.
        env_kwargs: Keyword arguments of the environment that affect its observations, such as
            {"obs_mode": "point_cloud", "cloud_size": [128, 128]}.
        reading: Layout of a keypoint detector's output; None for policies.
        detector: Blueprint of the detector that gives the policy its keypoints; None for policies
            without one.
    """

    version: Literal[1] = VERSION
    config: PolicyConfig
    observation: dict[str, ArraySpec]
    action: ArraySpec
    scaling: Scaling
    env_kwargs: EnvKwargs
    reading: Annotated[Reading | None, STORED_IF_SET] = None
    detector: Annotated["Blueprint | None", STORED_IF_SET] = None

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.detector is not None:
            if self.detector.reading is None or self.reading is not None:
                raise ValueError(
                    "the blueprint of its detector does not describe a keypoint detector"
                )
            if set(self.detector.observation) - set(self.observation):
                raise ValueError("its observation lacks the inputs of its detector")
            if self.config.first_frame:
                raise ValueError("a policy behind a detector keeps no entry of the first step")
            self.policy()  # checks the rest
        else:
            self._require_scaled_entries()
        if observation_kwargs(self.env_kwargs) != self.env_kwargs:
            raise ValueError(
                f"{self.env_kwargs} must be exactly the keyword arguments that affect observations"
            )
        if len(self.action.shape) != 1 or self.action.dtype != "float32":
            raise ValueError("expected an action that is one row of float32")
        if self.action.rate_hz is None:
            raise ValueError("the rate_hz of actions is missing")
        if self.reading is not None:
            if self.action.shape != (self.reading.size,):
                raise ValueError(f"expected {self.reading.size} numbers from a keypoint detector")
            if list(self.observation) != [CLOUD] or self.config.with_memory or self.config.gate:
                raise ValueError(
                    "expected a keypoint detector that is one network without memory and reads "
                    f"{CLOUD!r}"
                )
        return self

    def _require_scaled_entries(self) -> None:
        if list(entries_read(self.config, self.observation)) != list(self.observation):
            raise ValueError("the config must read exactly the entries of `observation`, sorted")
        sizes = {name: len(row) for name, row in self.scaling.mean.items()}
        expected = {
            name: int(np.prod(self.observation[name].shape)) for name in self.names("state")
        }
        if sizes != expected:
            raise ValueError(f"the scaling has the sizes {sizes}; expected {expected}")

    @classmethod
    def of(
        cls,
        config: PolicyConfig,
        observation: Layout,
        action: ArraySpec,
        scaling: Scaling | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Makes the blueprint of a policy.

        Args:
            config: Configuration of the policy.
            observation: Layout of the available entries, such as a dataset's header has.
            action: Layout of the demonstrated actions, likewise.
            scaling: Scaling of the entries to read, and perhaps of others; None changes no number.
            env_kwargs: Keyword arguments of the environment; others than observations' are left
                out.

        Raises:
            LayoutError, UnknownNameError: Such a policy cannot read these entries, see
                `layout.entries_read`.
            ConfigError: The scaling does not fit.
        """
        read = entries_read(config, observation)
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
            "env_kwargs": observation_kwargs(env_kwargs or {}),
        }
        return parse(cls, parts, "The blueprint")

    @property
    def control_rate_hz(self) -> float:
        """Control rate of the demonstrations."""
        assert self.action.rate_hz is not None
        return self.action.rate_hz

    @property
    def least_env_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the environment that shows what is read, and little else."""
        return observation_kwargs(self.env_kwargs, self.observation)

    def names(self, kind: Kind) -> list[str]:
        """Returns the names of the entries of a kind, in the order in which they are read."""
        return [name for name, array in self.observation.items() if kind_of(name, array) == kind]

    def absent(self, name: str) -> np.ndarray:
        """Returns a constant in place of an optional entry that a robot lacks, to be broadcast.

        It is the mean of the entry in the scaling, which the network reads as 0; a cloud without
        points; or a black image.
        """
        array = self.observation[name]
        if kind_of(name, array) != "state":
            return np.zeros((1,) * len(array.shape), array.dtype)
        return np.array(self.scaling.mean[name], array.dtype).reshape(array.shape)

    def completed(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns an observation with constants in place of missing optional entries.

        Raises:
            LayoutError: It has no entry that shows the object.
        """
        lacks = [name for name in self.optional if name not in observation]
        if lacks and set(sights := entries_of_sight(self.observation)) <= set(lacks):
            raise LayoutError(
                f"The observation has none of {', '.join(sights)}, by which the policy sees the "
                f"object. Its entries: {', '.join(observation) or 'none'}."
            )
        stand_ins = {
            name: np.broadcast_to(self.absent(name), self.observation[name].shape) for name in lacks
        }
        return {**observation, **stand_ins} if lacks else observation

    @property
    def optional(self) -> list[str]:
        """Names of the entries that a robot may lack."""
        return [name for name in self.config.optional if name in self.observation]

    @property
    def numbers(self) -> int:
        """Number of entries of a chunk of actions."""
        return self.config.chunk * self.action.shape[0]

    @property
    def with_memory(self) -> bool:
        """Whether actions depend on earlier steps: by the body or by a keypoint detector."""
        return self.config.with_memory or self.detector is not None

    def policy(self) -> "Blueprint":
        """Returns the blueprint of the policy behind its detector, without the detector."""
        assert self.detector is not None and self.detector.reading is not None
        seen = self.detector.observation
        others = {name: each for name, each in self.observation.items() if name not in seen}
        read = {name: self.detector.reading.layout for name in NAMES if name in self.scaling.mean}
        update = {
            "observation": dict(sorted({**others, **read}.items())),
            "env_kwargs": {"obs_mode": "multitask_state"},
            "detector": None,
        }
        return Blueprint.model_validate({**dict(self), **update})

    def with_width(self, width: int) -> "Blueprint | None":
        """Returns the blueprint of policies with another width of the body.

        Returns:
            None if it has no width that can be changed, see `PolicyConfig.with_width`.
        """
        config = self.config.with_width(width)
        return None if config is None else self.model_copy(update={"config": config})

    def create(self, seed: int = 0) -> "Network":
        """Returns a new network; torch's global generator stays as it is.

        Args:
            seed: Seed of the weights.
        """
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._network()

    def create_empty(self) -> "Network":
        """Returns a network with shapes and without numbers."""
        import torch

        with torch.device("meta"):
            return self._network()

    def _network(self) -> "Network":
        from fleet_tools.baselines.policies.keypoint_detector import (
            DetectingNetwork,
            KeypointDetector,
        )
        from fleet_tools.baselines.policies.network import GatedNetwork, PolicyNetwork

        if self.reading is not None:
            return KeypointDetector(self, self.reading)
        gate = self.config.gate
        policy = self if self.detector is None else self.policy()
        members = [PolicyNetwork(policy) for _ in range(1 if gate is None else gate.members)]
        network = members[0] if gate is None else GatedNetwork(gate, members)
        if self.detector is None or self.detector.reading is None:
            return network
        return DetectingNetwork(KeypointDetector(self.detector, self.detector.reading), network)

    def arguments(self, seed: int = 0) -> "tuple[Any, ...]":
        """Returns example arguments of the network, with queries of a head that denoises.

        With these, the network returns the outputs of its last linear map.

        Args:
            seed: See `example`.
        """
        import torch

        from fleet_tools.baselines.policies.heads import regression

        actions, generator = torch.zeros(2, 4, self.numbers), np.random.default_rng(seed)
        inputs = regression(self.config.head, actions, generator).inputs
        return (self.example(seed), None, *inputs)

    def example(self, seed: int = 0) -> "dict[str, torch.Tensor]":
        """Returns observations of 2 random trajectories of 4 steps, (2, 4, *shape) by name.

        Args:
            seed: Seed of the numbers: normal ones, or colours. Every point of a cloud and every
                padded row is present.
        """
        import torch

        generator = torch.Generator().manual_seed(seed)
        entries = {}
        for name, array in self.observation.items():
            shape = (2, 4, *array.shape)
            if kind_of(name, array) == "image":
                entries[name] = torch.randint(0, 256, shape, generator=generator).byte()
                continue
            entries[name] = torch.randn(shape, generator=generator)
            if array.kind in ("points", "masked_keypoints"):
                entries[name][..., -1] = 1.0
        return entries

    def symmetry(self) -> "Symmetry":
        """Returns the table of the network's axes, for merging.

        The table of a user's class is derived from its computation. Tables of other parts are
        written by hand, see `PolicyNetwork.symmetry`. They take milliseconds instead of seconds,
        and differ only in names.

        Raises:
            MergeError: The policy is an ensemble, or no table can be derived; see `derive`.
        """
        if not self.config.own_classes or self.config.gate is not None:
            return self.create_empty().symmetry()

        from fleet_merging.symmetry.derive import derive

        key = self.to_json()
        if key not in _DERIVED:
            network, example = self.create().eval(), (self.example(),)
            _DERIVED[key] = derive(network, example, output=lambda outputs: outputs[0])
        return _DERIVED[key]

    def affine_maps(self) -> "tuple[AffineMap, ...]":
        """Returns the network's affine maps in the order in which they are applied.

        Labels of the last one, chunks of actions, have a weight for each action.
        """
        from fleet_merging.moments.rows import applied_maps

        *maps, last = applied_maps(self.create().eval(), *self.arguments())
        return (*maps, replace(last, parts=self.config.chunk))

    def differences(self, other: "Blueprint") -> list[str]:
        """Lists the differences that make the weights of two policies incompatible.

        The scaling of inputs is not among them; see `model_files.common_blueprint`.
        """
        return differences(self._flat(), other._flat())

    def _flat(self) -> dict[str, object]:
        config, action = by_dotted_keys(self.config.model_dump(mode="json")), dict(self.action)
        return {
            **{f"the config's {name}": value for name, value in config.items()},
            **describe_layout(self.observation),
            **{f"the {name} of actions": value for name, value in action.items()},
            **{f"the environment's {name}": value for name, value in self.env_kwargs.items()},
            "the detector": self.detector,
            "what is read": self.reading,
        }

    def require_environment(self, env: gymnasium.Env) -> None:
        """Checks that the policy can act in an environment of this package.

        Raises:
            LayoutError: The environment lacks an entry, or has one of another shape, dtype, unit,
                frame or order. Or its actions have another meaning.
        """
        offered = describe_observation(env)
        lacks = set(self.optional) - set(offered)
        read = {name: array for name, array in self.observation.items() if name not in lacks}
        require_offered(read, offered)
        action = describe_action(env)
        if action != self.action:
            found = differences(dict(action), dict(self.action))
            raise LayoutError(
                "The environment's actions do not fit the policy: "
                f"{'; '.join(f'the {difference}' for difference in found)}. Use the environment "
                "kwargs of the policy's training, or train on this environment."
            )
