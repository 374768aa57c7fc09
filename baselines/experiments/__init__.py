"""Experiments on merging: sweeps over fleets, barriers between policies, small-network studies."""
