"""Parallel work: workers that may die or hang, the connection to Ray, and deferred Ctrl-C."""
