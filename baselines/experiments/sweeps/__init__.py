"""Sweeps over fleets: `python -m fleet_tools.baselines.sweep`.

    sweep       which fleets are run, and the summary of those with one arm and value
    figure      the plots
    page        tables, as Markdown

Sweeps that share an output folder run each distinct fleet once.
"""
