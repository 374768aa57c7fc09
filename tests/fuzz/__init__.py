"""Fuzzing of everything that is read; `python -m tests.fuzz --help`."""
