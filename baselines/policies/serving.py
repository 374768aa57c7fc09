"""A checkpoint as a policy that can be served, see `fleet_tools.policies.policy_server`."""

from pathlib import Path

from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.sources import find_policy
from fleet_tools.policies.wire_messages import Hello


def served_checkpoint(path: Path) -> Served:
    """Reads a checkpoint that is to be served.

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
        env_kwargs=blueprint.env_kwargs,
    )
    return Served(hello, lambda: NetworkPolicy(checkpoint))
