"""Policies behind a socket: the protocol, a server, and clients for simulations and for robots."""
