"""Permutation symmetry of networks as data: tables of axes, their groups, and their check."""
