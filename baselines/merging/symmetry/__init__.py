"""The permutation symmetry of networks as data: tables of axes, their groups, and the check."""
