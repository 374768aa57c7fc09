"""Checkpoints of policies that have learned nothing."""

from pathlib import Path
from typing import Any

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import MLPConfig
from fleet_tools.dataset.header import describe_action, describe_observation
from fleet_tools.envs.spec import EnvSpec

SMALL_BODY = MLPConfig(layers=1, width=8)


def untrained(
    path: Path, config: PolicyConfig | None = None, seed: int = 0, **env_kwargs: Any
) -> str:
    """Stores a policy for the hammer, and returns its path.

    Args:
        path: Path of the file.
        config: Configuration of the policy; a small one on state if None.
        seed: Seed of its weights.
        env_kwargs: Keyword arguments of its environment.
    """
    env = EnvSpec.of(task="hammer", **env_kwargs).make_tool_use()
    blueprint = Blueprint.of(
        config or PolicyConfig(body=SMALL_BODY),
        describe_observation(env),
        describe_action(env),
        env_kwargs=env_kwargs,
    )
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create(seed=seed).state_dict()))
    return str(path)
