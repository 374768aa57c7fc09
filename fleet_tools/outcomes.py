"""How an episode can stand or end, as `info["outcome"]` and data sets name it."""

RUNNING = "running"
SUCCESS = "success"
TIME_LIMIT = "time_limit"
SIMULATION_ERROR = "simulation_error"
"""The simulator failed; nobody can be blamed, so it is no failure of the policy."""
POLICY_ERROR = "policy_error"
"""The policy raised an error; only `fleet_tools.episode.rollout` can tell."""
