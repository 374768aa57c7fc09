"""Studies of merging on small networks: `python -m fleet_tools.baselines.studies`."""
