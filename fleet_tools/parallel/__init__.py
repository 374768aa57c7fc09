"""Parallel work: the connection to Ray, workers that may die or hang, and deferred Ctrl-C."""
