"""How an episode can stand or end, as `info["outcome"]` and data sets name it."""

RUNNING = "running"
SUCCESS = "success"
TIME_LIMIT = "time_limit"
SIMULATION_ERROR = "simulation_error"
"""The simulator failed; nobody can be blamed, so it is no failure of the policy."""
POLICY_ERROR = "policy_error"
"""The policy raised an error; only `fleet_tools.rollouts.episode.rollout` can tell."""
NOT_REPRODUCIBLE = "not_reproducible"
"""It succeeded, but came out otherwise when it was run again; only `collect --verify` can tell."""
WORKER_ERROR = "worker_error"
"""The process that made it died, hung or met an error that nobody expected; only `collect` and
`evaluate` can tell."""
