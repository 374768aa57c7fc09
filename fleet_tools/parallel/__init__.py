"""Work in many processes at once: Ray's connection, workers that may die, a patient Ctrl-C."""
