"""Baselines: policies, and the methods that merge them."""
