"""Schemas of YAML files: task files and their parts, as frozen values."""
