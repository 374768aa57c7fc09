"""Baselines: policies, and the methods that merge them."""

if __name__ != "fleet_tools.baselines":  # a checkout's root on sys.path would import it twice
    raise ImportError(f"Import fleet_tools.baselines instead of {__name__}.")
