"""Policies: the protocol, how one is found by name, and the guard around foreign ones."""
