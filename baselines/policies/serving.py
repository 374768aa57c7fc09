"""A checkpoint as a policy that can be served, see `fleet_tools.policies.remote`."""

from pathlib import Path

from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.sources import find_policy
from fleet_tools.policies.wire_messages import Hello


def served_checkpoint(path: Path, control_rate_hz: float) -> Served:
    """Reads a checkpoint that is to be served.

    Args:
        path: Path of the checkpoint.
        control_rate_hz: Control rate of its demonstrations, Hz, which checkpoints do not hold.

    Raises:
        CheckpointError: See `load_checkpoint`.
        ConfigError: The control rate is not positive.
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
        control_period_s=1.0 / control_rate_hz,
        env_kwargs=blueprint.env_kwargs,
    )
    return Served(hello, lambda: NetworkPolicy(checkpoint))
