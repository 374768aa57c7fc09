"""Episodes as values, and the rollout loop of collection and evaluation."""
