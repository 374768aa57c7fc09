"""Barriers between the policies of a fleet: `python -m fleet_tools.baselines.barriers`.

    trained     a finished fleet, read from its folder
    lines       which lines between policies are measured
    measuring   loss and success on these lines
    report      barriers, and their summary over all pairs
    figure      the plot

The policies of one dataset are compared in pairs, as they are and aligned (the paper, section 3).
"""
