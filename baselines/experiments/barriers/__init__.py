"""Barriers between the policies of a fleet: `python -m fleet_tools.baselines.barriers`.

    trained_fleet      a finished fleet, read from its folder
    line_config        points on a line, and methods that align its ends
    line_measurement   losses and success rates on lines
    report             barriers, and their summary over all pairs
    figure             the plot

The policies of a fleet are compared in pairs, as they are and aligned (section 3 of the paper).
"""
