"""What a result says of who is evaluated."""

from pathlib import Path

from fleet_tools.evaluation.result import PolicyIdentity
from fleet_tools.policies.sources import PolicySource


def identify(
    policy: PolicySource, name: str | None = None, obs_mode: str | None = None
) -> PolicyIdentity:
    """Returns what a result says of a policy.

    Args:
        policy: Who.
        name: What tables are to call it; follows from the source if None.
        obs_mode: What it observes; as it says of itself if None, and "state" where it does not.
    """
    return PolicyIdentity(
        name=name or (Path(policy.source).stem if policy.kind == "checkpoint" else policy.name),
        kind=policy.kind,
        source=policy.name,
        content_digest=policy.content_digest,
        environment={**policy.environment, **({"obs_mode": obs_mode} if obs_mode else {})},
    )
