"""Parallel work: worker processes with restarts, the connection to Ray, deferred Ctrl-C."""
