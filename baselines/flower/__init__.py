"""Fleets over Flower (https://flower.ai), for robots and computers that others own.

Flower is an optional library that wants an environment of its own; see the guide "From two laptops
to a fleet". Its processes import `client` and `server` by name.
"""
