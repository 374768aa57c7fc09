"""Sweeps over fleets: `python -m fleet_tools.baselines.sweep`.

    sweep           configuration of a sweep, and its runs
    fleet_runner    trains the fleet of a run
    summary         success rates, losses and traffic of the runs of an arm
    output          the files of a sweep, written by
    figures         the plots
    markdown_page   the tables

Sweeps that share an output folder train each distinct fleet once.
"""
