"""What lies between the policies of a fleet: `python -m fleet_tools.baselines.barriers`.

    trained     a finished fleet, read back
    lines       what is drawn between its policies
    measuring   loss and success on these lines
    report      barriers, and these over all pairs
    figure      the picture

Policies of one data set, in pairs, as they are and aligned: the paper's barriers.
"""
