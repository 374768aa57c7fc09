"""Experts: keypoints -> kPAM -> trajectory -> policy."""

if __name__ != "fleet_tools.experts":  # a checkout's root on sys.path would import it twice
    raise ImportError(f"Import fleet_tools.experts instead of {__name__}.")
