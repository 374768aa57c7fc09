"""Studies, which print tables that anyone can repeat: `python -m fleet_tools.baselines.studies`."""
