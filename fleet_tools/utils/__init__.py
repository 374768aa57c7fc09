"""Shared utilities: command lines, lazy imports, the package's own files."""
