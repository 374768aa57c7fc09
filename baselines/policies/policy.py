"""A network that acts by the protocol `fleet_tools.policies.policy.Policy`, here or served.

It predicts a chunk of actions in each step; `execute` chooses the action.
"""

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from fleet_tools.baselines.policies.bodies import Hidden
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.policies.heads import first_noise
from fleet_tools.baselines.policies.layout import LayoutError, require_observed
from fleet_tools.baselines.policies.part_configs import (
    EnsembleConfig,
    ExecutionConfig,
    LinearHeadConfig,
)
from fleet_tools.envs.recorded_env import RecordedEnv, observer_of
from fleet_tools.envs.wrappers import require_entries, require_own_actions
from fleet_tools.errors import PolicyError
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.sources import find_policy
from fleet_tools.policies.wire_messages import Hello

Chunks = tuple[np.ndarray, ...]
"""Remembered chunks (n, 6), the oldest first; each has the action of its own step first."""


def execute(
    config: ExecutionConfig, former: Chunks, chunk: np.ndarray
) -> tuple[np.ndarray, Chunks]:
    """Returns the action of a step.

    Args:
        config: How chunks are executed.
        former: Chunks to remember from the step before; none at the beginning of an episode.
        chunk: The chunk of this step, (n, 6).

    Returns:
        The action (6,), and the chunks to remember.
    """
    if isinstance(config, EnsembleConfig):
        chunks = (*former, chunk)[-len(chunk) :]
        return ensemble(chunks, config.decay), chunks
    chunks = (*former, chunk) if len(former) < config.steps else (chunk,)
    return chunks[0][len(chunks) - 1], chunks


def ensemble(chunks: Sequence[np.ndarray], decay: float) -> np.ndarray:
    """Returns the weighted mean of all predictions for a step (Zhao et al. 2023, section IV-B).

    Args:
        chunks: Chunks of this step and those before it, the oldest first, (n, 6) each.
        decay: See `EnsembleConfig`.

    Returns:
        (6,).
    """
    ages = range(len(chunks) - 1, -1, -1)
    predictions = [chunk[age] for chunk, age in zip(chunks, ages, strict=True)]
    weights = ensemble_weights(len(chunks), decay)
    return (weights @ np.stack(predictions)).astype(chunks[0].dtype)


def ensemble_weights(count: int, decay: float) -> np.ndarray:
    """Returns the weights of predictions from the oldest on, (count,); their sum is 1."""
    weights = np.exp(-decay * np.arange(count))
    return weights / weights.sum()


class NetworkPolicy:
    """Acts step by step; keeps the network's hidden state and chunks.

    A head that begins with noise draws it from the same generator state in every episode. So
    actions depend only on the observations since `reset`.

    Args:
        checkpoint: The policy as a value.
        device: Device of the computation.
        env: The environment in which it is to act, if it has wrappers.

    Raises:
        ConfigError: See `fleet_tools.envs.wrappers`.
        LayoutError: The checkpoint is a keypoint detector.
    """

    _acts_in: "weakref.ref[RecordedEnv] | None"

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str | torch.device = "cpu",
        env: gymnasium.Env | None = None,
    ) -> None:
        self.blueprint = checkpoint.blueprint
        if self.blueprint.reading is not None:
            raise LayoutError(
                "The checkpoint is a keypoint detector, which returns no actions. Attach it to a "
                "policy: `python -m fleet_tools.baselines.attach_detector`."
            )
        self._device = torch.device(device)
        require_own_actions(env)
        if env is not None:
            require_entries(env, set(self.blueprint.observation) - set(self.blueprint.optional))
        self._network = self.blueprint.create()
        self._network.load_state_dict(checkpoint.weights)
        self._network.to(self._device).eval()
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, which may continue the episode in another environment."""
        return {**vars(self), "_acts_in": None}

    def reset(self, seed: int = 0) -> None:
        """Forgets the last episode.

        Args:
            seed: Seed of the noise of flow and diffusion heads.
        """
        self._acts_in = None
        self._hidden: Hidden | None = None
        self._chunks: Chunks = ()
        self._kept: dict[str, np.ndarray] = {}
        self._generator = np.random.default_rng(seed)

    @torch.inference_mode()
    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns an action, (6,) float32 in [-1, 1], as `env.step` takes it.

        Raises:
            LayoutError: The observation does not fit the policy; its hidden state is unchanged.
            PolicyError: The policy remembers an episode of another environment.
        """
        if isinstance(observation, Mapping):
            observation = self.blueprint.completed(observation)
        require_observed(self.blueprint.observation, observation)
        self._require_one_environment(observation)
        for name in self.blueprint.config.first_frame:
            self._kept.setdefault(name, np.array(observation[name]))
        inputs = {
            name: torch.tensor(self._kept.get(name, observation[name]), device=self._device)[
                None, None
            ]
            for name in self.blueprint.observation
        }
        config, shape = self.blueprint.config, (1, 1, self.blueprint.numbers)
        noise = [each.to(self._device) for each in first_noise(config.head, shape, self._generator)]
        actions, self._hidden = self._network(inputs, self._hidden, *noise)
        chunk = actions.unflatten(-1, (config.chunk, -1))[0, 0].cpu().numpy()
        action, self._chunks = execute(config.execution, self._chunks, chunk)
        return action.clip(-1, 1)

    def _require_one_environment(self, observation: Mapping[str, np.ndarray]) -> None:
        config, env = self.blueprint.config, observer_of(observation)
        if env is None:
            return
        remembers = (
            self._hidden
            or self._kept
            or config.chunk > 1
            or not isinstance(config.head, LinearHeadConfig)
        )
        if remembers and self._acts_in is not None and self._acts_in() is not env:
            raise PolicyError(
                f"This {type(self).__name__} got an observation of another environment in the "
                "middle of an episode. Make a policy for each environment, or call `reset` at the "
                "beginning of an episode."
            )
        self._acts_in = weakref.ref(env)


def load_checkpoint_policy(
    path: str | Path, env: gymnasium.Env | None = None, device: str | torch.device = "cpu"
) -> NetworkPolicy:
    """Reads a policy from a checkpoint.

    Args:
        path: Path of the checkpoint.
        env: The environment in which it is to act, if known. Its units, frames, order of keypoints
            and scale of actions must be as in training. Shapes and dtypes are always checked.
        device: Device of the computation.

    Raises:
        CheckpointError: See `load_checkpoint`.
        LayoutError: See `Blueprint.require_environment`.
        ConfigError: A wrapper of the environment hides an input of it, or changes actions.
    """
    checkpoint = load_checkpoint(path)
    if env is not None and checkpoint.blueprint.reading is None:
        checkpoint.blueprint.require_environment(env)
    return NetworkPolicy(checkpoint, device, env)


def served_checkpoint(path: Path) -> Served:
    """Reads a checkpoint to be served, see `fleet_tools.policies.policy_server`.

    Args:
        path: Path of the checkpoint.

    Raises:
        CheckpointError: See `load_checkpoint`.
    """
    checkpoint = load_checkpoint(path)
    found = find_policy(str(path))
    blueprint = checkpoint.blueprint
    hello = Hello(
        policy=found.name,
        blueprint_digest=blueprint.digest(),
        content_digest=str(found.content_digest),
        observation=blueprint.observation,
        action=blueprint.action,
        control_period_s=1.0 / blueprint.control_rate_hz,
        env_kwargs=blueprint.least_env_kwargs,
    )
    return Served(hello, lambda: NetworkPolicy(checkpoint))
